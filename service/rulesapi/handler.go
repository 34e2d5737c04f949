package rulesapi

import (
	"context"
	_ "embed" // embeds the description of the API
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/server"
)

const (
	// maxRules bounds a body that holds rules: 32 MiB of rules, as text in JSON.
	maxRules = 64 << 20
	// maxBody bounds all other bodies.
	maxBody = 64 << 10
	// tokensFor is how long tokens are cached. A revoked token is accepted for no longer.
	tokensFor = time.Second
	// unknownFor is how long tokens are cached for requests whose token is not among them. Such a
	// request waits at most that long, since the token may just have been made.
	unknownFor = 50 * time.Millisecond
	// tokensWithin is how long the database may take to return tokens, while requests with tokens
	// wait. After a failure they are not read again for tokensFor.
	tokensWithin = 3 * time.Second
	// loadWithin bounds a load of overrides. Within that, more of the body must come each
	// moreWithin.
	loadWithin = time.Hour
	moreWithin = 30 * time.Second
	// actWithin is how long the backend may take for one request. The longest is to write a
	// document after reading one.
	actWithin = 75 * time.Second
	// mostCalls is how many authorised requests are served at once, since each may wait for the
	// backend.
	mostCalls = 1024
	// answerWithin is how long a client may take to read the answer.
	answerWithin = 10 * time.Second
	// OpenAPI is the path of the description of the API.
	OpenAPI = "/v1/openapi.json"
)

//go:embed openapi.json
var openAPI []byte

// An endpoint is one operation of the API. Status 0 says that the answer has been written.
type endpoint struct {
	method, path string
	role         rulesdb.Role // the least role that may call it
	serve        func(h *Handler, c *call) (status int, answer any, err error)
	body         body
}

// A body says how the body of a request is read.
type body int

const (
	brief    body = iota
	document      // rules, which take memory
	stream        // as many overrides as there are, here or in the answer
)

var endpoints = []endpoint{
	{"GET", "/v1/rules", rulesdb.Viewer, (*Handler).rules, brief},
	{"POST", "/v1/rules", rulesdb.Admin, (*Handler).publish, document},
	{"POST", "/v1/rules/validate", rulesdb.Viewer, (*Handler).validate, document},
	{"POST", "/v1/rules/diff", rulesdb.Viewer, (*Handler).diff, document},
	{"GET", "/v1/rules/history", rulesdb.Viewer, (*Handler).history, brief},
	{"POST", "/v1/rules/rollback", rulesdb.Admin, (*Handler).rollback, brief},
	{"POST", "/v1/rules/accept", rulesdb.Admin, (*Handler).accept, brief},
	{"GET", "/v1/overrides", rulesdb.Operator, (*Handler).overrides, brief},
	{"POST", "/v1/overrides", rulesdb.Operator, (*Handler).loadOverrides, stream},
	{"GET", "/v1/overrides.csv", rulesdb.Operator, (*Handler).exportOverrides, stream},
	{"GET", "/v1/override", rulesdb.Operator, (*Handler).override, brief},
	{"PUT", "/v1/override", rulesdb.Operator, (*Handler).putOverride, brief},
	{"DELETE", "/v1/override", rulesdb.Operator, (*Handler).deleteOverride, brief},
	{"PUT", "/v1/block", rulesdb.Operator, (*Handler).block, brief},
	{"DELETE", "/v1/block", rulesdb.Operator, (*Handler).unblock, brief},
	{"GET", "/v1/plans", rulesdb.Operator, (*Handler).plans, brief},
	{"GET", "/v1/plan", rulesdb.Operator, (*Handler).plan, brief},
	{"PUT", "/v1/plan", rulesdb.Operator, (*Handler).putPlan, brief},
	{"DELETE", "/v1/plan", rulesdb.Operator, (*Handler).deletePlan, brief},
	{"GET", "/v1/nodes", rulesdb.Viewer, (*Handler).nodes, brief},
	{"GET", "/v1/audit", rulesdb.Operator, (*Handler).audit, brief},
	{"GET", "/v1/tokens", rulesdb.Admin, (*Handler).tokens, brief},
	{"POST", "/v1/tokens", rulesdb.Admin, (*Handler).makeToken, brief},
	{"DELETE", "/v1/token", rulesdb.Admin, (*Handler).revokeToken, brief},
}

// A Route is an additional operation of the API of a server.
type Route struct {
	Method, Path string
	Role         rulesdb.Role // the least role that may call it
	Serve        func(*Request) (status int, answer any, err error)
}

// A Request is an authorised request for a [Route].
type Request struct {
	Context context.Context
	Query   url.Values
	// Author is the person or token that made the request, for the audit.
	Author string
	Role   rulesdb.Role

	call *call
}

// Clear reports whether keys are shown in clear. They are for operators, unless the request is
// [Hashed].
func (r *Request) Clear() bool { return r.Role != rulesdb.Viewer && !hashed(r.Context) }

// Customer returns the customer that the query names.
func (r *Request) Customer() Customer { return r.call.customer() }

// Body decodes the body as JSON, and refuses unknown fields.
func (r *Request) Body(into any) error { return r.call.body(maxBody, into) }

// body decodes a body of at most the given size as JSON.
func (c *call) body(most int64, into any) error {
	status, detail := server.ReadJSON(c.w, c.r, most, into)
	if status == 0 {
		return nil
	}
	for _, name := range inQuery[c.r.URL.Path] {
		if strings.Contains(detail, fmt.Sprintf("unknown field %q", name)) {
			detail += fmt.Sprintf(": who is meant goes into the query, as in %s %s?%s=…", c.r.Method, c.r.URL.Path, strings.Join(inQuery[c.r.URL.Path], "=…&"))
		}
	}
	if strings.Contains(detail, "invalid character") && strings.HasPrefix(c.r.URL.Path, "/v1/rules") {
		detail += `: the text of the rules goes into JSON, as {"document": "rules: …"}`
	}
	return &requestError{status, detail}
}

// inQuery are the parameters of the query that name the customer, for requests with a body.
var inQuery = map[string][]string{
	"/v1/override": {"rule", "key"}, "/v1/block": {"rule", "key"},
	"/v1/reset": {"rule", "key"}, "/v1/refund": {"rule", "key"},
}

// HandlerOptions are the optional features of a Handler. The zero value turns them all off.
type HandlerOptions struct {
	// Log receives failures, with few lines for one cause, and overrides that are set, without
	// keys. The default discards them.
	Log *slog.Logger
	// Guest returns the author and the role of a request without a token of the editor. Role "" may
	// do nothing, and is the default for all.
	Guest func(r *http.Request) (author string, role rulesdb.Role)
	// Routes are additional operations of the API.
	Routes []Route
	// Unban ends the bans of a key under a rule, and reports whether there were any. The default
	// knows of none.
	Unban func(ctx context.Context, author, rule, key, reason string) (ended bool, err error)
	// KeyHash returns the hash of a key as logs show it. It is required where requests are
	// [Hashed].
	KeyHash func(rule, key string) string
}

// A Handler is the HTTP API of an editor. Callers send a token of the backend, which determines
// their role and name. It may be used from many goroutines at once.
type Handler struct {
	editor    *Editor
	log       *slog.Logger
	failures  *slog.Logger // log, with few lines of one cause
	guest     func(r *http.Request) (string, rulesdb.Role)
	keyHash   func(rule, key string) string
	unban     func(ctx context.Context, author, rule, key, reason string) (bool, error)
	endpoints []endpoint
	calls     chan struct{} // has a slot for each request being served
	loading   chan struct{} // has one slot, since one load runs at a time

	mu     sync.Mutex
	held   []rulesdb.Token
	failed error         // why tokens could not be read last
	took   time.Duration // how long reading them took
	read   time.Time
}

// NewHandler returns the API of an editor.
func NewHandler(d *Editor, o HandlerOptions) *Handler {
	h := &Handler{editor: d, log: o.Log, guest: o.Guest, keyHash: o.KeyHash, endpoints: slices.Clone(endpoints),
		calls: make(chan struct{}, mostCalls), loading: make(chan struct{}, 1)}
	if h.unban = o.Unban; h.unban == nil {
		h.unban = func(context.Context, string, string, string, string) (bool, error) { return false, nil }
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.failures = server.SampleLog(h.log)
	for _, r := range o.Routes {
		h.endpoints = append(h.endpoints, endpoint{r.Method, r.Path, r.Role, func(_ *Handler, c *call) (int, any, error) {
			return r.Serve(&Request{c.ctx, c.query, c.author, c.role, c})
		}, brief})
	}
	return h
}

// A call is one request, by the holder of a token or a guest.
type call struct {
	ctx    context.Context
	w      http.ResponseWriter
	r      *http.Request
	query  url.Values
	author string
	role   rulesdb.Role
}

// Has reports whether a path belongs to the API.
func (h *Handler) Has(path string) bool {
	return path == OpenAPI || slices.ContainsFunc(h.endpoints, func(e endpoint) bool { return e.path == path })
}

// ServeHTTP answers.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(server.AdminHeader, "1")
	if r.URL.Path == OpenAPI {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			server.WrongMethod(w, "GET, HEAD")
			return
		}
		server.WriteJSON(w, http.StatusOK, json.RawMessage(openAPI))
		return
	}
	var allow []string
	for i := range h.endpoints {
		e := &h.endpoints[i]
		if e.path != r.URL.Path {
			continue
		}
		if e.method == r.Method || e.method == http.MethodGet && r.Method == http.MethodHead {
			h.serve(w, r, e)
			return
		}
		allow = append(allow, e.method)
	}
	if len(allow) == 0 {
		server.WriteProblem(w, http.StatusNotFound, "", "no such path: "+OpenAPI+" says which there are")
		return
	}
	server.WrongMethod(w, strings.Join(allow, ", "))
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, e *endpoint) {
	author, role, err := h.Who(r)
	switch {
	case err != nil:
		h.fail(w, r, err)
		return
	case role == "":
		server.Unauthorized(w, r, "want a token that is known here, as Authorization: Bearer TOKEN")
		return
	case rank(role) < rank(e.role):
		why := "this is for the role " + string(e.role) + ", and yours is " + string(role)
		if f, ok := h.editor.Backend.(interface{ FileOnly() error }); ok && strings.HasPrefix(e.path, "/v1/rules") {
			why = f.FileOnly().Error() // whatever the role
		}
		server.WriteProblem(w, http.StatusForbidden, "", why)
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		server.WriteProblem(w, http.StatusBadRequest, "", "the query cannot be read")
		return
	}
	if err := checkQuery(e, query); err != nil {
		h.fail(w, r, err)
		return
	}
	if e.body != stream && r.Method != http.MethodGet {
		release, ok := server.WholeBody(w, r, maxRules)
		if !ok {
			return
		}
		defer release()
	}
	select {
	case h.calls <- struct{}{}:
		defer func() { <-h.calls }()
	default:
		w.Header().Set("Retry-After", "1")
		server.WriteProblem(w, http.StatusServiceUnavailable, "", fmt.Sprintf("nothing has changed: %d requests of operators are under way, which is as many as there may be", mostCalls))
		return
	}
	if e.body == document || e.path == "/v1/rules" && role == rulesdb.Viewer {
		done, ok := server.DocumentTurn(w, r)
		if !ok {
			return
		}
		defer done()
	}
	within := actWithin
	if e.body == stream {
		within = loadWithin
	}
	ctx, stop := context.WithTimeout(r.Context(), within)
	defer stop()
	status, answer, err := e.serve(h, &call{ctx, w, r, query, author, role})
	// The server gives answers less time than an act may take. In a test there is no server.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWithin))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if status != 0 {
		server.WriteJSON(w, status, answer)
	}
}

// Who returns the author and the role of a request, by its token; role "" may do nothing. The error
// is that of the database, which is read for tokens that are not known otherwise.
func (h *Handler) Who(r *http.Request) (author string, role rulesdb.Role, err error) {
	if h.guest != nil {
		if author, role = h.guest(r); role != "" {
			if server.Shown(r) != "" {
				server.KnownToken(r)
			}
			return author, role, nil
		}
	}
	token, err := h.token(r)
	if token == nil {
		return "", "", err
	}
	server.KnownToken(r)
	return token.Name, token.Role, nil
}

// rank orders roles by what they may do.
func rank(r rulesdb.Role) int {
	return slices.Index([]rulesdb.Role{rulesdb.Viewer, rulesdb.Operator, rulesdb.Admin}, r)
}

// token returns the valid token of a request, or nil. An unknown token may just have been made, so
// the tokens are read again; concurrent requests with unknown tokens share one read.
func (h *Handler) token(r *http.Request) (*rulesdb.Token, error) {
	shown := server.Bearer(r)
	if shown == "" {
		return nil, nil
	}
	began := time.Now()
	t, read, err := h.known(r, shown, began.Add(-tokensFor))
	if t != nil || err != nil || !read.Before(began) {
		return t, err
	}
	select {
	case <-r.Context().Done():
		return nil, nil
	case <-time.After(time.Until(read.Add(h.pause()))):
	}
	t, _, err = h.known(r, shown, began)
	return t, err
}

// pause returns how long after a read the tokens are read again for an unknown token. It is longer
// if the database is slow, so that it is not asked all the time.
func (h *Handler) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(max(unknownFor, 10*h.took), tokensFor)
}

// known returns the valid token with a text, or nil, from tokens that were read after a moment, and
// when they were read.
func (h *Handler) known(r *http.Request, shown string, after time.Time) (t *rulesdb.Token, read time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !h.read.After(after) {
		ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), tokensWithin)
		h.held, h.failed = h.editor.Tokens(ctx)
		stop()
		h.took = time.Since(now)
		if h.read = now; h.failed != nil {
			h.read = time.Now()
		}
	}
	if h.failed != nil {
		return nil, h.read, h.failed
	}
	hash := rulesdb.HashToken(shown) // comparing hashes reveals nothing about the token
	for i := range h.held {
		t := &h.held[i]
		if t.Hash == hash && !t.Ended {
			return t, h.read, nil
		}
	}
	return nil, h.read, nil
}

// A requestError is the error of a request that the API cannot use.
type requestError struct {
	status int
	detail string
}

func (e *requestError) Error() string { return e.detail }

// fail answers with a problem document for an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var request *requestError
	var input *InputError
	var faults rulesfile.Errors
	switch {
	case errors.As(err, &request):
		server.WriteProblem(w, request.status, "", request.detail)
	case errors.As(err, &input):
		server.WriteProblem(w, http.StatusUnprocessableEntity, input.Field, input.Err.Error())
	case errors.As(err, &faults):
		server.WriteProblem(w, http.StatusUnprocessableEntity, "document", err.Error())
	case errors.Is(err, rulesdb.ErrConflict):
		server.WriteProblem(w, http.StatusPreconditionFailed, "", h.bare(err))
	case errors.Is(err, rulesdb.ErrNotFound), errors.Is(err, rulesource.ErrEmpty):
		server.WriteProblem(w, http.StatusNotFound, "", h.bare(err))
	case errors.Is(err, rulesdb.ErrInput):
		server.WriteProblem(w, http.StatusUnprocessableEntity, "", h.bare(err))
	case errors.Is(err, ErrUnaudited):
		h.failures.Error("operators API", "path", r.URL.Path, "error", err)
		server.WriteProblem(w, http.StatusGatewayTimeout, "", ErrUnaudited.Error())
	case errors.Is(err, rulesdb.ErrAmbiguous):
		h.failures.Error("operators API", "path", r.URL.Path, "error", err)
		server.WriteProblem(w, http.StatusGatewayTimeout, "", rulesdb.ErrAmbiguous.Error())
	case errors.Is(err, ErrUnkept):
		h.failures.Error("operators API", "path", r.URL.Path, "error", err)
		server.WriteProblem(w, http.StatusServiceUnavailable, "", "nothing has changed: the server's state file cannot be written, and its log says why; --state names another place, --state none keeps acts in memory")
	default:
		h.failures.Error("operators API", "path", r.URL.Path, "error", err)
		server.WriteProblem(w, http.StatusServiceUnavailable, "", "this cannot be done now; the log says why, and the rules that are held go on")
	}
}

// bare removes the database's address from an error.
func (h *Handler) bare(err error) string {
	return strings.TrimPrefix(err.Error(), h.editor.String()+": ")
}
