package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/planner/plan"
)

// PlannerOptions bound what a [Planner] takes. The zero value suits most programs.
type PlannerOptions struct {
	// MaxBody bounds a log as it is sent, in bytes. The default value is
	// 256 MiB.
	MaxBody int64
	// MaxText bounds a log in bytes once it is unpacked. The default value is
	// 1 GiB.
	MaxText int64
	// MaxLines bounds a log in lines: memory grows with the clients, and each
	// line may be of another, at some 700 bytes. The default value is 3,000,000.
	MaxLines int64
	// Upload is how long a log may take to arrive. The default value is 2
	// minutes.
	Upload time.Duration
	// Patience is how long the reading may take. What was read until then is
	// reported, and said to be a part. The default value is a minute.
	Patience time.Duration
	// Dir is where a log is kept while it is read. The default value is that of
	// [os.TempDir].
	Dir string
}

// turnPatience is how long a log waits for the one before it.
var turnPatience = 5 * time.Second // tests that share the machine take more

// A Planner answers POST /v1/plan: the body is an access log, also gzip or
// zstd, and the query says what to ask of it, as the flags of stint plan do. The
// answer is a [plan.Report] as JSON, or with the parameter arrivals an
// [Arrived]. What is wrong with a request is said with status 400, 413 for what
// is too large, and a problem document.
//
// It reads one log at a time, which is in a file without a name meanwhile, and
// keeps nothing of it. Logs that are still coming count by what has come: of four times
// MaxBody, each may have half of what is free.
type Planner struct {
	o    PlannerOptions
	turn chan struct{}
	kept atomic.Int64 // bytes of logs in files
}

// NewPlanner returns a Planner.
func NewPlanner(o PlannerOptions) *Planner {
	for _, n := range []struct {
		value   *int64
		instead int64
	}{{&o.MaxBody, 256 << 20}, {&o.MaxText, 1 << 30}, {&o.MaxLines, 3_000_000}} {
		if *n.value == 0 {
			*n.value = n.instead
		}
	}
	if o.Upload == 0 {
		o.Upload = 2 * time.Minute
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	return &Planner{o: o, turn: make(chan struct{}, 1)}
}

// most is how large a log may be, in bytes.
func (p *Planner) most() int64 {
	if p == nil {
		return 0
	}
	return p.o.MaxBody
}

// ServeHTTP answers.
func (p *Planner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := readPlanQuery(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.ContentLength > p.o.MaxBody {
		p.refuse(w, p.tooLarge())
		return
	}
	connection := http.NewResponseController(w) // a log takes longer than other requests may
	_ = connection.SetReadDeadline(time.Now().Add(p.o.Upload))
	_ = connection.SetWriteDeadline(time.Now().Add(p.o.Upload + turnPatience + p.o.Patience + writeTimeout)) // in a test there is no connection
	file, err := p.keep(w, r)                                                                                // first: one that is slow holds no turn
	if err != nil {
		p.refuse(w, err)
		return
	}
	defer file.drop()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-r.Context().Done():
		return
	case <-time.After(turnPatience):
		writeError(w, http.StatusServiceUnavailable, "another log is being read: try again when it is done")
		return
	}
	answer, err := p.answer(r.Context(), file.File, q)
	switch {
	case r.Context().Err() != nil: // the client is gone
	case err != nil:
		p.refuse(w, err)
	default:
		writeJSON(w, http.StatusOK, answer)
	}
}

// errTooLarge marks what is over a bound.
type errTooLarge string

func (e errTooLarge) Error() string { return string(e) }

func (p *Planner) tooLarge() error {
	return errTooLarge("the log is over " + size(p.o.MaxBody) + ": pack it, take a part of it, or let stint plan read it from a terminal, where it may be of any size")
}

// errHere marks what is no fault of the request.
var errHere = errors.New("the log cannot be kept while it is read")

// errBusy is for a log beside too much of others.
var errBusy = errors.New("the logs of others fill the room for them: try again when they are read")

func (p *Planner) refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	_, large := errors.AsType[errTooLarge](err)
	switch {
	case large:
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, errBusy):
		status = http.StatusServiceUnavailable
	case errors.Is(err, errHere):
		status = http.StatusInternalServerError
	}
	writeError(w, status, err.Error())
}

// answer reads the log.
func (p *Planner) answer(ctx context.Context, file *os.File, q *planQuery) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	text, err := unpack(file, p.o.MaxText, p.o.MaxLines)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	q.options.Files, q.options.Stdin = []string{"-"}, text
	if q.arrivals {
		trace, err := plan.TraceOf(ctx, q.options, q.client, MaxArrivals)
		if err := p.failed(text, err); err != nil {
			return nil, err
		}
		return arrived(trace, q.client)
	}
	report, err := plan.Run(ctx, q.options)
	if err := p.failed(text, err); err != nil {
		return nil, err
	}
	for i := range report.Log.Files {
		report.Log.Files[i].Name = q.name
	}
	if c := report.Choice; c != nil {
		c.Check = strings.TrimSuffix(c.Check, " -") + " " + wording.QuoteShell(q.name)
	}
	return report, nil
}

// failed returns what went wrong, in words for those who sent the log.
func (p *Planner) failed(text *unpacked, err error) error {
	if over := text.over(); over != nil {
		return over
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("this takes longer than %v: take a part of the log, or let stint plan read it from a terminal", p.o.Patience)
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "standard input: "))
	}
	return nil
}
