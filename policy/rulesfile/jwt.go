package rulesfile

// A JWT is what a file says of the tokens whose claims are the attributes jwt.NAME.
type JWT struct {
	// Header is the name of the header that has the token, in lower case.
	Header string
	// JWKS is where the keys are: a URL, https or of this machine, or the absolute path of
	// a file.
	JWKS string
	// Issuer is what a token must name as iss; "" is any.
	Issuer string
	// Audience is what a token must name as aud, one of these. If there are none, a
	// token must have no aud.
	Audience []string
	// Algorithms are those that a token may be signed by, never none.
	Algorithms []string
}
