package httplimit

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers.
const problemQuota = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// A refusal is an answer that the guard gives in place of the handler.
type refusal struct {
	status   int
	grpc     uint8      // the status of a gRPC call
	problem  string     // the problem type
	title    string     // the same for every refusal of its kind
	detail   string     // what is wrong with this request
	violated []string   // names of limits, quoted
	retry    int64      // in seconds, rounded up; 0 sends no Retry-After
	wait     stint.Wait // retry as an exact wait
	rule     string     // the name of the rule that denied, if clients may know it
	reply    rulesfile.Reply
}

var (
	refuseRequest = refusal{status: http.StatusBadRequest, grpc: grpcInvalid, problem: "about:blank", title: "Bad Request"}
	refuseMissing = refusal{status: http.StatusForbidden, grpc: grpcForbidden, problem: "about:blank", title: "Forbidden"}
	refuseServer  = refusal{status: http.StatusInternalServerError, grpc: grpcInternal, problem: "about:blank", title: "Internal Server Error"}
	refuseQuota   = refusal{status: http.StatusTooManyRequests, grpc: grpcExhausted, problem: problemQuota, title: "Quota Exceeded"}
	refuseError   = refusal{status: http.StatusServiceUnavailable, grpc: grpcUnavailable, problem: "about:blank", title: "Service Unavailable"}
)

func (e *encoder) refuseDenied(d *stint.Decision) refusal {
	f := refuseQuota
	f.setWait(d.RetryAfter)
	for i := range e.limits {
		if d.Denied.Has(i) {
			f.violated = append(f.violated, e.limits[i].Quoted)
		}
	}
	return f
}

func refuseFault(err error) refusal {
	f := refuseRequest
	var unread *unreadBody
	if errors.As(err, &unread) {
		return unread.refusal()
	}
	var fault *policy.RequestError
	if errors.As(err, &fault) {
		f.detail = fault.Attribute + ": " + fault.Reason
	}
	return f
}

func refuseResult(r *policy.Result) refusal {
	f := refuseQuota
	for i := range r.Rules {
		switch one := &r.Rules[i]; {
		case one.Shadow || !one.Denied:
			continue
		case one.Failed == policy.FailClosed:
			if f.status != http.StatusForbidden {
				f = refuseError
			}
		case one.Action != "":
			f = refuseMissing
		}
	}
	for i := range r.Rules {
		if one := &r.Rules[i]; one.Denied && !one.Shadow && !one.Hidden() {
			f.violated = append(f.violated, ratefields.Quote(ratefields.Printable(one.Label)))
		}
	}
	f.setWait(r.Decision.RetryAfter)
	f.replyOf(r)
	return f
}

func (f *refusal) setWait(retry stint.Wait) {
	if retry != stint.Never {
		f.retry, f.wait = max(retry.Seconds(), 1), retry
	}
}

func (f *refusal) setRetry(h http.Header) {
	if f.retry > 0 {
		h.Set(fieldRetryAfter, strconv.FormatInt(f.retry, 10))
	}
}

// write answers with the refusal, in the form that the request accepts.
func (f *refusal) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	f.setRetry(h)
	for _, name := range []string{"Content-Encoding", "Content-Language", "Etag", "Last-Modified"} {
		h.Del(name) // these fields describe the handler's answer
	}
	h.Set("Cache-Control", "no-store")
	if protocol := rpcOf(r); protocol != noRPC {
		f.setReply(h, r.Header.Get("Origin"))
		f.writeRPC(w, r, protocol)
		return
	}
	kind, body, own := f.ownBody()
	if !own {
		form := negotiate(r.Header["Accept"])
		kind, body = forms[form].contentType, f.body(form)
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	f.setReply(h, r.Header.Get("Origin"))
	w.WriteHeader(f.statusLine())
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the client has gone
	}
}

func (f *refusal) body(form int) []byte {
	if form == formText {
		b := append([]byte(f.title), '.')
		if f.detail != "" {
			b = append(append(append(b, ' '), ratefields.Printable(f.detail)...), '.')
		}
		if f.retry > 0 {
			b = append(b, " Retry after "...)
			b = strconv.AppendInt(b, f.retry, 10)
			b = append(b, " s."...)
		}
		return append(b, '\n')
	}
	b := append([]byte(`{"type":"`), f.problem...)
	b = append(append(b, `","title":"`...), f.title...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(f.statusLine()), 10)
	if f.detail != "" {
		b = append(append(b, `,"detail":`...), ratefields.Quote(ratefields.Printable(f.detail))...)
	}
	if f.violated != nil {
		b = append(b, `,"violated-policies":[`...)
		b = append(b, strings.Join(f.violated, ",")...)
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}

// The forms of a body, the preferred first.
const (
	formProblem = iota
	formJSON
	formText
)

var forms = [...]struct{ contentType, kind, subtype string }{
	formProblem: {"application/problem+json", "application", "problem+json"},
	formJSON:    {"application/json", "application", "json"},
	formText:    {"text/plain; charset=utf-8", "text", "plain"},
}

// negotiate returns the form that Accept prefers, the first of equals. The most specific
// range that matches a form decides about it (RFC 9110, 12.5.1). Clients that want HTML, as
// browsers do, get text. If Accept has none of the forms, the client gets a problem: an
// answer it did not ask for is better than none.
func negotiate(accept []string) int {
	best, bestQ := formProblem, 0
	var quality, rank [len(forms)]int
	for _, line := range accept {
		for rest, more := line, true; more; {
			var item string
			item, rest, more = strings.Cut(rest, ",")
			kind, subtype, q, ok := mediaRange(item)
			if !ok {
				continue
			}
			for i, f := range forms {
				if specific := matches(f.kind, f.subtype, kind, subtype); specific > rank[i] {
					rank[i], quality[i] = specific, q
				}
			}
		}
	}
	for i, q := range quality {
		if q > bestQ {
			best, bestQ = i, q
		}
	}
	return best
}

// matches returns how specific a range is for a form; 0 if it does not match.
func matches(kind, subtype, rangeKind, rangeSubtype string) int {
	switch {
	case rangeKind == kind && rangeSubtype == subtype:
		return 4
	case kind == "text" && rangeKind == "text" && rangeSubtype == "html":
		return 3
	case rangeKind == kind && rangeSubtype == "*":
		return 2
	case rangeKind == "*" && rangeSubtype == "*":
		return 1
	}
	return 0
}

// mediaRange reads "type/subtype;q=0.5", with q in thousandths.
func mediaRange(item string) (kind, subtype string, q int, ok bool) {
	media, params, _ := strings.Cut(item, ";")
	kind, subtype, ok = strings.Cut(strings.ToLower(trimSpace(media)), "/")
	if !ok || kind == "" || subtype == "" {
		return "", "", 0, false
	}
	q = 1000
	for params != "" {
		var param string
		param, params, _ = strings.Cut(params, ";")
		name, value, _ := strings.Cut(param, "=")
		if strings.EqualFold(trimSpace(name), "q") {
			f, err := strconv.ParseFloat(trimSpace(value), 64)
			if err != nil || math.IsNaN(f) || f < 0 || f > 1 {
				return "", "", 0, false
			}
			return kind, subtype, int(f * 1000), true
		}
	}
	return kind, subtype, q, true
}
