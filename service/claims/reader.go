package claims

import (
	"net/http"
	"time"
)

// A Reader reads the claims of one request. It verifies the token once, when the first claim is
// asked for. It belongs to one goroutine.
type Reader struct {
	Source *Source // with nil, no request has claims
	Header http.Header

	claims      Claims
	read, known bool
}

// Claim returns a claim. If known is false, no keys have been read yet.
func (r *Reader) Claim(name string) (value string, ok, known bool) {
	if r.Source == nil {
		return "", false, true
	}
	if !r.read {
		r.claims, r.known = r.Source.Of(r.Header, time.Now())
		r.read = true
	}
	value, ok = r.claims[name]
	return value, ok, r.known
}
