// Package claims gives the verified claims of JSON Web Tokens (RFC 7519) to rules, and keeps the
// keys that verify them.
//
// A [Source] does what the rules in force say about tokens: [Source.Use] tells it which rules,
// [Source.Run] fetches keys, and [Source.Of] returns the claims of a request.
//
// # Guarantees
//
// A token has claims only if its signature verifies with a key of the JWKS that the rules name, by
// one of the algorithms that they list, and if its issuer, audience and times match; a minute of
// clock skew is forgiven. Keys that a token itself names (jwk, jku, x5c, x5u) are not used, "none"
// is no algorithm, and a key serves only the algorithms of its own kind. A claim that is no text,
// number or boolean counts as missing.
//
// No request waits for a key. Keys are fetched at most once a minute, whatever tokens ask for.
// While new keys cannot be fetched the last ones stay in force, and in a file across restarts.
//
// # Price
//
// Verifying takes 50 to 150 µs; the result is kept, so the next request with the same token takes
// about 2 µs.
package claims

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stint-dev/stint/policy/rulesfile"
)

const (
	// maxToken is the greatest length of a token, in bytes. Servers refuse longer headers.
	maxToken = 16 << 10
	// skew is how many seconds the clocks of the issuer and of this machine may differ.
	skew = 60
)

// Claims are the claims of a token that are text, booleans, or numbers as they are written. They
// must not be changed.
type Claims map[string]string

// An outcome is the result of verifying a token.
type outcome uint8

// The outcomes.
const (
	valid      outcome = iota
	noKeys             // no keys have been fetched yet
	tooLong            // longer than 16 KiB
	malformed          // no signed token, or its contents cannot be read
	algorithm          // not one of the algorithms in the rules
	unknownKey         // the JWKS has no key for the token
	signature          // the signature does not verify
	expired            // exp is past
	early              // nbf or iat is in the future
	issuer             // iss is not the issuer in the rules
	audience           // aud is not the audience in the rules

	outcomes = iota
)

// outcomeNames are the names of outcomes in metrics.
var outcomeNames = [outcomes]string{
	"valid", "no_keys", "too_long", "malformed", "algorithm", "unknown_key", "signature", "expired", "early", "issuer", "audience",
}

// A verifier verifies tokens as one rules file says.
type verifier struct {
	jwt        *rulesfile.JWT
	algorithms []jose.SignatureAlgorithm
	keys       atomic.Pointer[keySet] // nil until keys were read
	wanted     chan struct{}          // holds a value when a token has asked for an unknown key
}

func newVerifier(jwt *rulesfile.JWT) *verifier {
	v := &verifier{jwt: jwt, wanted: make(chan struct{}, 1)}
	for _, name := range jwt.Algorithms {
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(name))
	}
	return v
}

// token returns the token in the header of a request, or "". In Authorization it follows Bearer; in
// other headers Bearer may be missing.
func (v *verifier) token(h http.Header) string {
	lines := h[http.CanonicalHeaderKey(v.jwt.Header)]
	if len(lines) != 1 {
		return ""
	}
	scheme, token, found := strings.Cut(lines[0], " ")
	switch {
	case found && strings.EqualFold(scheme, "Bearer"):
		return token
	case !found && v.jwt.Header != "authorization":
		return lines[0]
	}
	return ""
}

// verify returns the claims of a token, and the outcome.
func (v *verifier) verify(token string, now time.Time) (Claims, outcome) {
	set := v.keys.Load()
	switch {
	case set == nil:
		return nil, noKeys
	case len(token) > maxToken:
		return nil, tooLong
	}
	at := float64(now.UnixMilli()) / 1000
	id := idOf(token)
	if known, ok := set.kept.find(id, at); ok {
		return known, valid
	}
	payload, o := set.check(token, v.algorithms)
	switch o {
	case unknownKey, signature:
		select {
		case v.wanted <- struct{}{}:
		default:
		}
		return nil, o
	case valid:
	default:
		return nil, o
	}
	c, err := decode(payload)
	if err != nil {
		return nil, malformed
	}
	if o := v.meant(c, at); o != valid {
		return nil, o
	}
	set.kept.add(id, c)
	return c.claims, valid
}

// meant says whether a token with a valid signature is for this audience and time. now is in
// seconds since the Unix epoch.
func (v *verifier) meant(c *content, now float64) outcome {
	switch {
	case now >= c.expires+skew:
		return expired
	case now < c.begins-skew:
		return early
	case v.jwt.Issuer != "" && c.claims["iss"] != v.jwt.Issuer:
		return issuer
	case len(v.jwt.Audience) == 0 && c.audience == nil:
		return valid
	case !slices.ContainsFunc(c.audience, func(one string) bool { return slices.Contains(v.jwt.Audience, one) }):
		return audience
	}
	return valid
}

// forever is when a token without exp expires.
var forever = math.Inf(1)
