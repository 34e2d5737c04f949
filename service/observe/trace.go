package observe

import (
	"net/http"
	"strings"
	"time"
)

// A Request is what an entrypoint knows of a request beside the decision.
type Request struct {
	// Took is how long the decision took. Waited is how long the request was held back before it
	// passed.
	Took, Waited time.Duration
	// Header has the request's headers, among them traceparent, which names its trace; nil if it
	// had none.
	Header http.Header
}

// A Trace is the trace of a request, as in W3C Trace Context.
type Trace struct {
	ID, Parent string // in hexadecimal
	Sampled    bool
}

// Trace returns the trace that the request names. It returns false if there is none, or it is
// malformed, since the client's text goes to logs.
func (q *Request) Trace() (t Trace, ok bool) {
	lines := q.Header["Traceparent"]
	if len(lines) != 1 {
		return t, false
	}
	parts := strings.Split(lines[0], "-")
	if len(parts) < 4 || len(parts) > 4 && parts[0] == "00" || parts[0] == "ff" ||
		!hex(parts[0], 2) || !hex(parts[1], 32) || !hex(parts[2], 16) || !hex(parts[3], 2) ||
		strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return t, false
	}
	return Trace{parts[1], parts[2], strings.ContainsRune("13579bdf", rune(parts[3][1]))}, true
}

// hex reports whether a text is n lower-case hexadecimal digits.
func hex(text string, n int) bool {
	strange := func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }
	return len(text) == n && !strings.ContainsFunc(text, strange)
}
