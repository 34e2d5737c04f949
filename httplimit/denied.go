package httplimit

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/stint-dev/stint/policy"
)

// exposed are the fields that a page of another origin reads only if the answer names them,
// spelled as http.Header keeps them.
var exposed = []string{
	fieldRetryAfter, fieldPolicy, fieldRateLimit, fieldLimit, fieldRemaining, fieldReset, fieldXLimit, fieldXRemaining, fieldXReset,
}

// replyOf has the refusal answer as the rule says whose limit denied for longest.
func (f *refusal) replyOf(r *policy.Result) {
	if r.Tightest < 0 {
		return
	}
	e := &r.Rules[r.Tightest]
	f.reply = e.Reply()
	if !f.reply.Hidden {
		f.rule = e.Rule
	}
	if f.status == http.StatusServiceUnavailable { // the store failed; the rule did not deny
		f.reply.Denied = nil
	}
}

// setReply writes the headers that the rule says, and those by which pages of an origin may
// read the answer. It must come after all other headers, which it names.
func (f *refusal) setReply(h http.Header, origin string) {
	var own []string
	if x := f.reply.Denied; x != nil {
		for _, one := range x.Headers {
			if v := x.Fill(one.Value, f.rule, f.retry); v != "" {
				h.Set(one.Name, v)
				own = append(own, one.Name)
			}
		}
	}
	c := f.reply.CORS
	if c == nil {
		return
	}
	h.Add("Vary", "Origin")
	if !c.Allows(origin) {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if len(c.Origins) > 0 {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	for _, name := range exposed {
		if _, has := h[name]; has {
			own = append(own, name)
		}
	}
	h.Set("Access-Control-Expose-Headers", strings.Join(own, ", "))
}

// ownBody returns the body that the rule says; false if it says none.
func (f *refusal) ownBody() (contentType string, body []byte, ok bool) {
	x := f.reply.Denied
	if x == nil || x.Type == "" {
		return "", nil, false
	}
	return x.Type, []byte(x.Fill(x.Body, f.rule, f.retry)), true
}

func (f *refusal) statusLine() int {
	if f.reply.Denied == nil {
		return f.status
	}
	return cmp.Or(f.reply.Denied.Status, f.status)
}

// A Denial is the answer to a denied request, beside its header fields.
type Denial struct {
	Status int    // the rule's own, else Cause
	Cause  int    // the status that [Dialect.Set] returns
	Body   []byte // the rule's own, else a problem of RFC 9457
	Own    bool   // Body is the rule's own
}

// Deny is [Dialect.Set] with a whole answer, for a server that passes it on to the client:
// the answer is as the rule says under denied and cors. origin is the request's Origin, ""
// for none. Deny also sets the Content-Type of the body.
func (d Dialect) Deny(h http.Header, r *policy.Result, origin string) Denial {
	d.encode(h, r, "")
	f := refuseResult(r)
	f.setRetry(h)
	kind, body, own := f.ownBody()
	if !own {
		kind, body = forms[formProblem].contentType, f.body(formProblem)
	}
	h.Set("Content-Type", kind)
	f.setReply(h, origin)
	return Denial{f.statusLine(), f.status, body, own}
}
