// Package claims gives the verified claims of JSON Web Tokens (RFC 7519) to rules, and
// keeps the keys that verify them.
//
// A [Source] follows what the rules in force say of tokens: [Source.Use] is told,
// [Source.Run] fetches keys, and [Source.Of] returns the claims of a request.
//
// # Guarantees
//
// A token has claims here only if its signature verifies with a key of the JWKS that the
// rules name, by one of the algorithms that they list, and if it is for the issuer, the
// audience and the time: a minute of clock skew is forgiven. What a token says of keys
// (jwk, jku, x5c, x5u) is not used, "none" is no algorithm, and a key serves the algorithms
// of its own kind alone. A claim that is no text, number or boolean is missing.
//
// No request waits for a key. Keys are fetched at most once a minute, whatever tokens
// ask for. The last ones stay in force while new ones cannot be had, and in a file across
// restarts.
//
// # Price
//
// Verifying takes 50 to 150 µs; the result is kept, so the next request with the same
// token takes about 2 µs.
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
	// maxToken is how long a token may be, in bytes. Servers refuse longer headers.
	maxToken = 16 << 10
	// skew is by how many seconds the clocks of the issuer and of this machine may differ.
	skew = 60
)

// Claims are those of a token that are text, numbers, as they are written, or booleans.
// Nobody changes them.
type Claims map[string]string

// An outcome is what has become of a token.
type outcome uint8

// The outcomes.
const (
	valid      outcome = iota
	noKeys             // no keys have been fetched yet
	tooLong            // longer than 16 KiB
	malformed          // no signed token, or what it says cannot be read
	algorithm          // not one of those listed
	unknownKey         // the JWKS has no key for it
	signature          // it does not verify
	expired            // exp is past
	early              // nbf or iat is in the future
	issuer             // another iss
	audience           // another aud

	outcomes = iota
)

// outcomeNames are what metrics call them.
var outcomeNames = [outcomes]string{
	"valid", "no_keys", "too_long", "malformed", "algorithm", "unknown_key", "signature", "expired", "early", "issuer", "audience",
}

// A verifier verifies tokens as one file of rules says.
type verifier struct {
	jwt        *rulesfile.JWT
	algorithms []jose.SignatureAlgorithm
	keys       atomic.Pointer[keySet] // nil until there are some
	wanted     chan struct{}          // has one when a token has asked for other keys
}

func newVerifier(jwt *rulesfile.JWT) *verifier {
	v := &verifier{jwt: jwt, wanted: make(chan struct{}, 1)}
	for _, name := range jwt.Algorithms {
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(name))
	}
	return v
}

// token returns the token in the header of a request, or "". Authorization has it
// behind Bearer, another header with or without that.
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

// verify returns the claims of a token, and what has become of it.
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

// meant says whether a token that has verified is for us and for now, a moment in
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

// forever is when a token expires that does not say so.
var forever = math.Inf(1)
