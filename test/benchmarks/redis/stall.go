package redis

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

const stallCallers = 16

// stall stops a server under load, lets it go on, and measures how long calls
// take meanwhile. It has a server of its own: clients of the other chapters
// would go on asking one that is stopped.
func (f *figures) stall() error {
	s, err := startServer()
	if err != nil {
		return err
	}
	defer s.stop()
	store, err := redisstore.New(redisstore.Options{URL: "redis://" + s.address})
	if err != nil {
		return err
	}
	front := fallback.New(&witness{store}, fallback.Options{})
	defer front.Close()
	limiter, err := limiterOf(front, "stalled", "1000000/1h")
	if err != nil {
		return err
	}
	runtime.GC() // of what the chapters before left, not while few calls are timed
	ask := asking(limiter)
	defer func() { _, _ = ask.stop() }()
	time.Sleep(f.stalled / 10)
	if err := await("no decision by Redis before the stall", func() bool { return store.Stats().Open == 0 && !front.Stats().Degraded }); err != nil {
		return err
	}
	stopped := time.Since(ask.born)
	if err := s.process.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(f.stalled)
	resumed := time.Since(ask.born)
	if err := s.process.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := await("no decision by Redis after the stall", func() bool { return !front.Stats().Degraded }); err != nil {
		return err
	}
	time.Sleep(f.stalled / 10)
	all, err := ask.stop()
	if err != nil {
		return err
	}
	return f.stallTable(judge(all, stopped, resumed))
}

// await waits until Redis decides.
func await(problem string, well func() bool) error {
	for end := time.Now().Add(30 * time.Second); !well(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New(problem)
		}
	}
	return nil
}

// A word is what the store said of a call, before package fallback answered it.
type word uint8

const (
	decided   word = iota
	ambiguous      // it may have been charged
	notAsked       // the breaker is open
	notSent        // as part of a batch, say
)

// An ask is one call.
type ask struct {
	begun, ended time.Duration // since the callers were started
	said         word
}

// A witness stands between the fallback and the store, and reports to callers how
// the store answered their calls. A call is decided in its caller's goroutine.
type witness struct{ stint.Store }

type witnessed struct{ stint.Bound }

// saidTo is the key of a context's value: a *word.
type saidTo struct{}

func (w *witness) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := w.Store.Bind(name, limits...)
	return witnessed{b}, err
}

// Reserve is what debts are posted by.
func (w *witness) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	layers = slices.Clone(layers)
	for i := range layers {
		layers[i].Bound = layers[i].Bound.(witnessed).Bound
	}
	return w.Store.Reserve(ctx, layers, cost, ttl)
}

func (b witnessed) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	d, err := b.Bound.Decide(ctx, op, key, cost)
	said := notSent
	switch {
	case err == nil:
		said = decided
	case errors.Is(err, redisstore.ErrAmbiguous):
		said = ambiguous
	case errors.Is(err, redisstore.ErrUnavailable):
		said = notAsked
	}
	if to, ok := ctx.Value(saidTo{}).(*word); ok {
		*to = said
	}
	return d, err
}

// askers are concurrent callers, each with a key of its own.
type askers struct {
	born    time.Time
	done    atomic.Bool
	running sync.WaitGroup
	asks    [stallCallers][]ask
	errs    [stallCallers]error
}

// asking starts the callers. Each pauses a millisecond between calls: a decision
// without the server takes so little time that callers without a pause would keep
// every core busy, and wait for each other.
func asking(l *stint.Limiter) *askers {
	a := &askers{born: time.Now()}
	for i := range stallCallers {
		a.running.Go(func() {
			said := new(word)
			ctx := context.WithValue(context.Background(), saidTo{}, said)
			for !a.done.Load() {
				begun := time.Since(a.born)
				if err := admitted(l.Allow(ctx, keyOf(i))); err != nil {
					a.errs[i] = err
					return
				}
				a.asks[i] = append(a.asks[i], ask{begun, time.Since(a.born), *said})
				time.Sleep(time.Millisecond)
			}
		})
	}
	return a
}

// stop ends them and returns all calls. It may be called again.
func (a *askers) stop() ([]ask, error) {
	a.done.Store(true)
	a.running.Wait()
	return slices.Concat(a.asks[:]...), errors.Join(a.errs[:]...)
}
