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
	// MaxText bounds the unpacked text of a log, in bytes. The default value is 1 GiB.
	MaxText int64
	// MaxLines bounds the lines of a log, since each line may have a new client, which takes some
	// 700 bytes of memory. The default value is 3,000,000.
	MaxLines int64
	// Upload is how long a log may take to arrive. The default value is 2
	// minutes.
	Upload time.Duration
	// Patience is how long the reading may take. After that the report covers what was read, and
	// says so. The default value is a minute.
	Patience time.Duration
	// Dir is the directory for a log while it is read. The default value is that of [os.TempDir].
	Dir string
}

// turnPatience is how long a log waits for the one before it.
var turnPatience = 5 * time.Second // tests that share the machine set it higher

// A Planner answers POST /v1/plan. The body is an access log, also gzip or zstd, and the query has
// the options, as the flags of stint plan do. The answer is a [plan.Report] as JSON, or an
// [Arrived] if the query has arrivals. A wrong request is answered with status 400, or 413 if it is
// too large, and a problem document.
//
// A Planner reads one log at a time, from a file without a name, and keeps nothing of it
// afterwards. All logs that are still arriving may together take four times MaxBody; each may take
// at most half of what is free.
type Planner struct {
	o    PlannerOptions
	turn chan struct{}
	kept atomic.Int64 // bytes of all logs in files
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

// most returns how large a log may be now, in bytes.
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
	connection := http.NewResponseController(w) // a log may take longer than the server's timeouts
	_ = connection.SetReadDeadline(time.Now().Add(p.o.Upload))
	_ = connection.SetWriteDeadline(time.Now().Add(p.o.Upload + turnPatience + p.o.Patience + writeTimeout)) // an error means a test without a connection
	file, err := p.keep(w, r)                                                                                // before taking a turn: a slow body must not hold one
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
	case r.Context().Err() != nil: // the client has gone
	case err != nil:
		p.refuse(w, err)
	default:
		writeJSON(w, http.StatusOK, answer)
	}
}

// errTooLarge is the error of a log above a bound.
type errTooLarge string

func (e errTooLarge) Error() string { return string(e) }

func (p *Planner) tooLarge() error {
	return errTooLarge("the log is over " + size(p.o.MaxBody) + ": pack it, take a part of it, or let stint plan read it from a terminal, where it may be of any size")
}

// errHere is the error of a log that cannot be kept, which is not the client's fault.
var errHere = errors.New("the log cannot be kept while it is read")

// errBusy is the error of a log for which the logs of others leave no space.
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

// failed returns what went wrong, in words for the client.
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
