package rulesworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulesredis"
)

const (
	// leaseFor is how long a silent worker keeps the lease. renewAt is how often the leader renews
	// it and the others ask for it. Together they are less than 5 s.
	leaseFor, renewAt = 3500 * time.Millisecond, time.Second
	// leaseWithin is how long asking for the lease may take.
	leaseWithin = 2 * time.Second
	// lookEvery is how often a worker checks that the target still holds what was published.
	lookEvery = 2 * time.Second
	// again is the least wait after a failure. As much is added at random.
	again = 500 * time.Millisecond
)

// Options are the options of a worker. All are required.
type Options struct {
	// From is the database, To the target to which its rules are published.
	From *rulesdb.DB
	To   Target
	// Name is the name of the worker, different from that of all other workers.
	Name string
	// Check refuses a document that nodes could not use.
	Check func(name string, document []byte) error
	// Log receives changes and failures.
	Log *slog.Logger
}

// A Worker publishes what a database holds. Make one with [New].
type Worker struct {
	o Options

	mu      sync.Mutex
	held    rulesource.Version // the published version
	hash    string
	since   time.Time
	problem string // why the newest version is not published; "" if it is
	relay   relay
}

// New returns a worker.
func New(o Options) *Worker { return &Worker{o: o} }

// Run works while it holds the lease, until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	name := "worker " + w.o.To.String()
	for ctx.Err() == nil {
		if !w.lease(ctx, name) {
			aside.Sleep(ctx, renewAt/2+rand.N(renewAt/2))
			continue
		}
		w.lead(ctx, name)
	}
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), leaseWithin)
	defer stop()
	_ = w.o.From.Release(last, name, w.o.Name) // otherwise the lease ends by itself
}

// lease takes or renews the lease.
func (w *Worker) lease(ctx context.Context, name string) bool {
	ctx, stop := context.WithTimeout(ctx, leaseWithin)
	defer stop()
	held, err := w.o.From.Lease(ctx, name, w.o.Name, leaseFor)
	if err != nil && ctx.Err() == nil {
		w.trouble(err)
	}
	return err == nil && held
}

// lead works as long as the lease is renewed.
func (w *Worker) lead(ctx context.Context, name string) {
	w.o.Log.Info("worker: leads", "to", w.o.To.String(), "worker", w.o.Name)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var beside sync.WaitGroup
	beside.Go(func() {
		for ctx.Err() == nil {
			w.publishing(ctx)
		}
	})
	beside.Go(func() { w.relayNodes(ctx) })
	for renewed := time.Now(); ctx.Err() == nil; {
		aside.Sleep(ctx, renewAt)
		asked := time.Now()
		switch {
		case w.lease(ctx, name):
			renewed = asked
		case time.Since(renewed) >= leaseFor-leaseWithin/2:
			w.o.Log.Warn("worker: leads no longer", "to", w.o.To.String(), "worker", w.o.Name)
			stop()
		}
	}
	beside.Wait()
}

// publishing publishes what is new, and waits for more.
func (w *Worker) publishing(ctx context.Context) {
	v, err := w.publish(ctx, false)
	if rulesredis.TooMuch(err) {
		v, err = w.publish(ctx, true)
	}
	if err == nil {
		err = w.wait(ctx, v)
	}
	if err != nil && ctx.Err() == nil {
		w.trouble(err)
		aside.Sleep(ctx, again+rand.N(again))
	}
}

// publish makes the target equal to the database, and returns the version, published or refused.
func (w *Worker) publish(ctx context.Context, anew bool) (rulesource.Version, error) {
	p, err := w.o.To.New(ctx)
	if err != nil {
		return rulesource.Version{}, err
	}
	if anew {
		p.ForceFull()
	}
	c := &checked{Publication: p, check: w.o.Check}
	s, err := w.o.From.Load(ctx, p.Held(), c)
	switch {
	case errors.Is(err, rulesource.ErrEmpty) && s != nil:
		if p.Newest().Revision > 0 {
			w.trouble(errors.New("the database holds no rules any more: what is published stays"))
		}
		return s.Version, nil
	case c.refused != nil:
		p.Drop()
		w.trouble(c.refused)
		return c.s.Version, nil
	case err != nil:
		if c.begun {
			p.Drop()
		}
		return rulesource.Version{}, err
	}
	if s.Version != p.Newest() || p.Held() != p.Newest() {
		if err := p.Publish(); err != nil {
			return s.Version, err
		}
		level := slog.LevelDebug // overrides may change thousands of times a second
		if s.Document != nil {
			level = slog.LevelInfo
		}
		w.o.Log.Log(ctx, level, "worker: published", "to", w.o.To.String(), "revision", s.Version.Revision, "change", s.Version.Change)
	} else {
		p.Drop()
	}
	w.mu.Lock()
	w.held, w.hash, w.problem = s.Version, s.Hash, ""
	w.since = time.Now()
	w.mu.Unlock()
	return s.Version, nil
}

// wait waits until the database has a version other than v, or the target has lost what was
// published.
func (w *Worker) wait(ctx context.Context, v rulesource.Version) error {
	w.mu.Lock()
	held := w.held
	w.mu.Unlock()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var beside sync.WaitGroup
	beside.Go(func() {
		for waiting.Err() == nil {
			aside.Sleep(waiting, lookEvery)
			if there, err := w.o.To.Newest(waiting); err == nil && there != held {
				stop()
			}
		}
	})
	err := w.o.From.Wait(waiting, v)
	lost := waiting.Err() != nil
	stop()
	beside.Wait()
	if lost && ctx.Err() == nil {
		return nil
	}
	return err
}

// trouble records why the newest version is not published, and logs it once.
func (w *Worker) trouble(err error) {
	why := err.Error()
	w.mu.Lock()
	same := w.problem == why
	w.problem = why
	w.mu.Unlock()
	if !same {
		w.o.Log.Error("worker: what is published stays", "to", w.o.To.String(), "err", strings.ReplaceAll(why, "\n", "; "))
	}
}

// A checked is a publication that refuses a version which does not follow the one before, or which
// nodes cannot use.
type checked struct {
	Publication
	check   func(name string, document []byte) error
	s       *rulesource.Snapshot
	begun   bool
	refused error
}

// Begin implements [rulesource.Receiver].
func (c *checked) Begin(s *rulesource.Snapshot, whole bool) error {
	c.s = s
	if s.Strayed || !s.Version.Follows(c.Newest()) {
		c.refused = fmt.Errorf("revision %d, change %d is not published: the database was restored to an older state, and may have changed since, or is another one: if it is right, stint rules accept says so", s.Version.Revision, s.Version.Change)
		return c.refused
	}
	if s.Document != nil && c.check != nil {
		if err := c.check(s.Name, s.Document); err != nil {
			c.refused = fmt.Errorf("revision %d is not published: %w", s.Version.Revision, err)
			return c.refused
		}
	}
	c.begun = true
	return c.Publication.Begin(s, whole)
}
