package rehearse

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

// Path is where a [Handler] answers.
const Path = "/v1/rehearse"

const (
	// maxBody bounds a body: rules of 32 MiB, as text in JSON.
	maxBody = 64 << 20
	// Within is how long a rehearsal may take.
	Within = time.Minute
	// maxTop is how many keys may be asked for.
	maxTop = 1000
)

// A Query is the body of a request to a [Handler].
type Query struct {
	// Name is the name of the rules file, and Document what it holds.
	Name     string `json:"name,omitempty"`
	Document string `json:"document"`
	// Names asks for keys in clear, for operators.
	Names bool `json:"names,omitempty"`
	// Top is how many keys are listed. The default value is 20.
	Top int `json:"top,omitempty"`
	// WarmUp is a duration: see [Options].
	WarmUp string `json:"warm_up,omitempty"`
}

// HandlerOptions are what a Handler needs. All but Fresh, Checkpoints and Log
// must be given.
type HandlerOptions struct {
	// Policy returns the policy in force.
	Policy func() *policy.Policy
	// Recorder has the requests.
	Recorder *Recorder
	// Check reads a rules file as servers do.
	Check func(name string, document []byte) (*rules.File, error)
	// Fresh says that the store was empty when the recorder was made.
	Fresh bool
	// Checkpoints are of the store. The default, nil, is none.
	Checkpoints *Checkpoints
	// Who returns the author and the role of a request; role "" may do nothing.
	Who func(r *http.Request) (author string, role rulesdb.Role, err error)
	// Note writes into the audit that the author looked at keys in clear.
	Note func(ctx context.Context, author string) error
	// Log records which author looked at keys in clear. The default discards it.
	Log *slog.Logger
}

// A Handler rehearses rules on the requests that a server recorded, one
// rehearsal at a time, and leaves the processor to decisions. Viewers may ask;
// keys in clear are for operators.
type Handler struct {
	o    HandlerOptions
	busy sync.Mutex
}

// NewHandler returns a Handler.
func NewHandler(o HandlerOptions) *Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Handler{o: o}
}

// ServeHTTP answers.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		server.WrongMethod(w, http.MethodPost)
		return
	}
	author, role, err := h.o.Who(r)
	switch {
	case err != nil:
		server.WriteProblem(w, http.StatusServiceUnavailable, "", "whom the token belongs to cannot be asked just now")
		return
	case role == "":
		server.Unauthorized(w, r, "want a token that is known here, as Authorization: Bearer TOKEN")
		return
	}
	drop, ok := server.WholeBody(w, r, maxBody)
	if !ok {
		return
	}
	defer drop()
	done, ok := server.DocumentTurn(w, r)
	if !ok {
		return
	}
	release := sync.OnceFunc(done)
	defer release()
	var query Query
	if status, detail := server.ReadJSON(w, r, maxBody, &query); status != 0 {
		server.WriteProblem(w, status, "", detail)
		return
	}
	if query.Names {
		if role == rulesdb.Viewer {
			server.WriteProblem(w, http.StatusForbidden, "names", "keys in clear are for operators, and your role is viewer")
			return
		}
		h.o.Log.Info("rehearsal shows keys in clear", "author", author)
		if err := h.o.Note(r.Context(), author); err != nil {
			h.o.Log.Error("rehearsal", "error", err)
			server.WriteProblem(w, http.StatusServiceUnavailable, "names", "keys are not shown, since the audit cannot be written; the log says why")
			return
		}
	}
	h.answer(w, r, &query, release)
}

// answer rehearses, and calls read when the rules are read.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, query *Query, read func()) {
	// A rehearsal of a million requests stays within 2 s.
	pauses := &aside.Slices{Work: 5 * time.Millisecond, Rest: time.Millisecond}
	o := Options{Live: h.o.Policy(), Names: query.Names, Top: query.Top, Fresh: h.o.Fresh, Pause: pauses.Pause}
	if query.Top < 0 || query.Top > maxTop {
		server.WriteProblem(w, http.StatusUnprocessableEntity, "top", "from 1 to 1000")
		return
	}
	if query.WarmUp != "" {
		d, err := time.ParseDuration(query.WarmUp)
		if err != nil || d < 0 {
			server.WriteProblem(w, http.StatusUnprocessableEntity, "warm_up", `want a duration from 0s, such as "5m"`)
			return
		}
		if o.WarmUp = d; d == 0 {
			o.WarmUp = -1
		}
	}
	f, err := h.o.Check(cmp.Or(query.Name, "stint.yaml"), []byte(query.Document))
	read()
	if err != nil {
		server.WriteProblem(w, http.StatusUnprocessableEntity, "document", err.Error())
		return
	}
	if !h.busy.TryLock() {
		w.Header().Set("Retry-After", "2")
		server.WriteProblem(w, http.StatusTooManyRequests, "", "another rehearsal is under way: one runs at a time")
		return
	}
	defer h.busy.Unlock()
	ctx, stop := context.WithTimeout(r.Context(), Within)
	defer stop()
	o.After, o.Recording = f.Rules, h.o.Recorder.Recording(time.Now())
	if h.o.Checkpoints != nil {
		first, _ := o.Recording.Span()
		o.Checkpoint = h.o.Checkpoints.Since(first)
	}
	report, err := Run(ctx, o)
	switch {
	case errors.Is(err, ErrEmpty):
		server.WriteProblem(w, http.StatusConflict, "", err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		server.WriteProblem(w, http.StatusServiceUnavailable, "", "the rehearsal took longer than a minute, because requests come first")
	case err != nil:
		server.WriteProblem(w, http.StatusUnprocessableEntity, "document", err.Error())
	default:
		server.WriteJSON(w, http.StatusOK, report)
	}
}
