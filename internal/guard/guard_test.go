package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// A blind store takes, but cannot describe a key.
type blind struct{ *memstore.Store }

type blindBound struct{ stint.Bound }

var errBlind = errors.New("blind")

func (s blind) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return blindBound{b}, err
}

func (b blindBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	if op == meter.OpPeek && cost == 0 {
		return stint.Decision{}, errBlind
	}
	return b.Bound.Decide(ctx, op, key, cost)
}

func newGuard(t *testing.T, s stint.Store, most time.Duration, text string) *guard.Guard {
	t.Helper()
	limit := made.Limit(t, text)
	l := made.Limiter(t, s, "test", limit)
	return guard.New(l, most)
}

func TestWaits(t *testing.T) {
	for _, c := range []struct {
		limit string
		most  time.Duration
		waits bool
	}{
		{"10/s", 0, false}, {"10/s leaky_queue burst 5", 0, true}, {"10/s", time.Second, true}, {"10/s leaky_queue burst 5", -1, false},
	} {
		if g := newGuard(t, memstore.New(memstore.Options{}), c.most, c.limit); g.Waits() != c.waits {
			t.Errorf("%s, at most %v: waits %v", c.limit, c.most, g.Waits())
		}
	}
}

// TestTakeQueued spaces requests, and denies what would wait too long, with the wait
// after which it would not.
func TestTakeQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		g := newGuard(t, s, 0, "10/s leaky_queue burst 1")
		for i, want := range []time.Duration{0, 100 * time.Millisecond} {
			if i == 1 {
				go g.TakeQueued(t.Context(), "a", 1)
				synctest.Wait()
				d, waited, err := g.TakeQueued(t.Context(), "a", 1)
				if err != nil || d.Allowed || waited != 0 || d.RetryAfter != stint.Wait(100*time.Millisecond) {
					t.Errorf("%+v, waited %v, %v; want a denial for 100ms", d, waited, err)
				}
				time.Sleep(want)
				continue
			}
			d, waited, err := g.TakeQueued(t.Context(), "a", 1)
			if err != nil || !d.Allowed || d.Taken != 1 || waited != want {
				t.Errorf("%+v, waited %v, %v", d, waited, err)
			}
		}
	})
}

// TestAfterWait passes a request that was charged, although the store cannot describe its key.
func TestAfterWait(t *testing.T) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	_, _, err := newGuard(t, blind{s}, time.Second, "10/s").TakeQueued(t.Context(), "a", 1)
	var passed *guard.AfterWait
	if !errors.As(err, &passed) || !errors.Is(err, errBlind) {
		t.Errorf("%v; want an error after the wait", err)
	}
}
