package server

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"sync"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/claims"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
)

// Options are what a Handler needs. Source, Observer and Admin must be given.
type Options struct {
	// Source has the rules.
	Source *rules.Source
	// Observer counts and logs decisions.
	Observer *observe.Observer
	// Admin answers /livez, /readyz and /metrics.
	Admin *Admin
	// Log receives what operators do, without keys. The default discards it.
	Log *slog.Logger
	// Open lets every client that reaches the server ask. By default clients show
	// a token.
	Open bool
	// Clients are the tokens of clients that may ask. The default is none.
	Clients *Tokens
	// Operators are the tokens of clients that may refund and reset, and ask. The
	// default is none.
	Operators *Tokens
	// Client says which proxies may ask at /auth, and in which header they name
	// their clients. The default is none.
	Client httplimit.ClientIP
	// Claims verifies tokens for rules by jwt.NAME at /auth. The default is that no request
	// has claims.
	Claims *claims.Source
	// Dialect is the header fields to send. The default is
	// httplimit.Draft11.
	Dialect httplimit.Dialect
	// Envoy answers the body of a POST to /json, a rate limit request of Envoy, with
	// a status and a body; operator says that the client showed an operator's token.
	// By default there is no such path.
	Envoy func(ctx context.Context, body []byte, operator bool) (status int, answer []byte, err error)
	// MaxBatch is how many requests a body may have. The default value is 100.
	MaxBatch int
	// Usage serves GET /v1/usage; it checks tokens itself. By default there is no
	// such path.
	Usage http.Handler
	// MaxWaiting is how many requests of /auth may wait for their start under a leaky_queue, up
	// to 10,000: each of them holds a connection. One address may have a quarter of what is
	// free. The default value is 10,000.
	MaxWaiting int
	// MaxBody bounds a body, in bytes. The default value is 64 KiB.
	MaxBody int
}

// A Handler answers checks over HTTP. It may be used from many goroutines at once.
type Handler struct {
	o       Options
	sampled *slog.Logger // for lines that any client can cause
	plain   httplimit.Ambiguous
	foreign *http.CrossOriginProtection
	calls   sync.Pool // of *call
	waiting Load      // requests of /auth
}

// NewHandler returns a Handler.
func NewHandler(o Options) *Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.MaxBatch = cmp.Or(o.MaxBatch, 100)
	o.MaxBody = cmp.Or(o.MaxBody, 64<<10)
	o.MaxWaiting = min(cmp.Or(o.MaxWaiting, mostWaiting), mostWaiting)
	return &Handler{
		o: o, sampled: SampleLog(o.Log), foreign: http.NewCrossOriginProtection(),
		waiting: NewShares(o.MaxWaiting, waitingParts, o.Client.Trusted,
			"as many requests wait for their turn as may", "as many requests of its client wait for their turn as may"),
		calls: sync.Pool{New: func() any { return &call{body: make([]byte, 0, 1<<10), out: make([]byte, 0, 1<<9)} }},
	}
}

// A call is the state of one request: its body and its answer. Calls are used again.
type call struct {
	body     []byte
	requests checkRequests
	policy   *policy.Policy
	result   policy.Result
	id       stint.ReservationID
	by       int    // the line of the operator's token
	out      []byte // the answer
}

// A verb is an operation that a client asks for by POST, at a path of its own.
type verb struct {
	may, must fields
	batch     bool
	operator  bool
	// do answers one question in c.out, and returns the status.
	do func(h *Handler, w http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem)
}

var verbs = map[string]*verb{
	"/v1/check":   {may: fieldAttributes | fieldCost | fieldCosts, must: fieldAttributes, batch: true, do: (*Handler).check},
	"/v1/peek":    {may: fieldAttributes | fieldCost | fieldCosts, must: fieldAttributes, batch: true, do: (*Handler).peek},
	"/v1/reserve": {may: fieldAttributes | fieldCost | fieldCosts | fieldTTL, must: fieldAttributes, batch: true, do: (*Handler).reserve},
	"/v1/settle":  {may: fieldReservation | fieldCost | fieldCosts, must: fieldReservation, do: (*Handler).settle},
	"/v1/cancel":  {may: fieldReservation, must: fieldReservation, do: (*Handler).cancel},
	"/v1/refund":  {may: fieldAttributes | fieldCost, must: fieldAttributes | fieldCost, operator: true, do: (*Handler).refund},
	"/v1/reset":   {may: fieldAttributes, must: fieldAttributes, operator: true, do: (*Handler).reset},
}

// openAPI describes the verbs; it is served at openAPIPath.
//
//go:embed openapi.json
var openAPI []byte

const openAPIPath = "/v1/openapi.json"

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if v, ok := verbs[r.URL.Path]; ok {
		h.answer(w, r, v)
		return
	}
	if deny, ok := authPaths[r.URL.Path]; ok {
		h.auth(w, r, deny)
		return
	}
	switch r.URL.Path {
	case "/json":
		h.envoy(w, r)
	case "/metrics":
		if _, refused := h.authorize(w, r, false); refused != nil {
			refused.write(w)
			return
		}
		h.o.Admin.ServeHTTP(w, r)
	case "/livez", "/readyz":
		h.o.Admin.ServeHTTP(w, r)
	case openAPIPath:
		WriteJSON(w, http.StatusOK, json.RawMessage(openAPI))
	case "/v1/usage":
		if h.o.Usage != nil {
			h.o.Usage.ServeHTTP(w, noting(r, h.o.Observer, observe.HTTP))
			return
		}
		fallthrough
	default:
		notFound("POST /v1/check, /v1/peek, /v1/reserve, /v1/settle, /v1/cancel, /v1/refund, /v1/reset, /json and GET /auth, /auth/401, /auth/403, /auth/429, /livez, /readyz, /metrics, " + openAPIPath + "; what operators ask is at the address of --admin").write(w)
	}
}

// authorize returns a problem if the client may not ask, and of an operator's token the
// line in its file.
func (h *Handler) authorize(w http.ResponseWriter, r *http.Request, operator bool) (line int, refused *problem) {
	if !operator && h.o.Open {
		return 0, nil
	}
	if operator && h.o.Operators == nil {
		return 0, &problem{status: http.StatusForbidden, detail: "for operators alone: start with --operator-token-file FILE, and show a token of it"}
	}
	shown := Bearer(r)
	if by := h.o.Operators.Find(shown); by.Line > 0 && by.Role != RoleViewer {
		return by.Line, nil
	}
	client := h.o.Clients.Has(shown)
	switch {
	case client && operator:
		return 0, &problem{status: http.StatusForbidden, detail: "this token may ask: refund and reset are for operators' tokens"}
	case client:
		return 0, nil
	}
	noteShown(noting(r, h.o.Observer, observe.HTTP))
	w.Header().Set("Www-Authenticate", "Bearer")
	return 0, &problem{status: http.StatusUnauthorized, detail: "want a token that is known here, in one header: Authorization: Bearer TOKEN"}
}

// answer answers a request for a verb.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, v *verb) {
	if r.Method != http.MethodPost {
		WrongMethod(w, http.MethodPost)
		return
	}
	c := h.calls.Get().(*call)
	defer h.release(c)
	refused := h.read(w, r, v, c)
	switch {
	case refused != nil:
	case c.requests.batch():
		h.answerBatch(w, r, v, c)
		return
	default:
		var status int
		c.out = append(c.out[:0], '{')
		if status, refused = v.do(h, w, r, c, &c.requests.one); refused == nil {
			c.out = append(c.out, "}\n"...)
			c.write(w, status)
			return
		}
	}
	refused.write(w)
}

// admit returns a problem if the client may not ask, or a page of another origin sent the
// request.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, c *call, operator bool) (refused *problem) {
	if err := h.foreign.Check(r); err != nil {
		return &problem{status: http.StatusForbidden, detail: "sent by a page of another origin"}
	}
	c.by, refused = h.authorize(w, r, operator)
	return refused
}

// read admits a request and reads the checks in its body.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, v *verb, c *call) (refused *problem) {
	if refused = h.admit(w, r, c, v.operator); refused != nil {
		return refused
	}
	if c.body, refused = readBody(c.body, w, r, h.o.MaxBody); refused == nil {
		most := 0
		if v.batch {
			most = h.o.MaxBatch
		}
		refused = c.requests.read(string(c.body), v.may, v.must, most)
	}
	if refused != nil {
		h.o.Observer.Failed(entrypoint, refused)
	}
	c.policy = h.o.Source.Policy()
	return refused
}

// answerBatch answers each check of a body by itself, in order.
func (h *Handler) answerBatch(w http.ResponseWriter, r *http.Request, v *verb, c *call) {
	c.out = append(c.out[:0], `{"results":[`...)
	for i := range c.requests.list {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		begin := len(c.out)
		c.out = append(c.out, '{')
		_, failed := v.do(h, nil, r, c, &c.requests.list[i])
		if failed == nil {
			c.out = append(c.out, '}')
			continue
		}
		c.out = failed.append(c.out[:begin])
	}
	c.out = append(c.out, "]}\n"...)
	c.write(w, http.StatusOK)
}

var jsonType = []string{"application/json"}

// write sends the answer. net/http sets the Content-Length of a short one.
func (c *call) write(w http.ResponseWriter, status int) {
	head := w.Header()
	head["Content-Type"] = jsonType
	if len(c.out) > 2<<10 {
		head.Set("Content-Length", strconv.Itoa(len(c.out)))
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
	}
	_, _ = w.Write(c.out) // a client that has gone needs no answer
}

// maxKept is the largest buffer that a call keeps to use again, in bytes.
const maxKept = 64 << 10

func (h *Handler) release(c *call) {
	if cap(c.out) > maxKept {
		c.out = nil
	}
	c.requests.release()
	c.policy, c.id, c.by = nil, "", 0
	c.result.Costs = nil
	h.calls.Put(c)
}
