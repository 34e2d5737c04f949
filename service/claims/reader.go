package claims

import (
	"net/http"
	"time"
)

// A Reader reads the claims of one request, which has its token verified once, when a
// claim is asked for. It belongs to one goroutine.
type Reader struct {
	Source *Source // nil gives none
	Header http.Header

	claims      Claims
	read, known bool
}

// Claim returns a claim. known is false if it cannot be known, since there are no keys yet.
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
