package fallback_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
)

// batched is a shared store that charges many keys at once.
type batched struct {
	*shared
	done  map[string]map[string]bool // ids, and the keys that were charged under them
	calls int
	most  int // charges in a call
}

func newBatched() *batched {
	return &batched{shared: newShared(), done: make(map[string]map[string]bool)}
}

func (b *batched) Charge(ctx context.Context, id string, charges []fallback.Charge) error {
	b.calls++
	b.most = max(b.most, len(charges))
	_, err := call(b.shared, func() (struct{}, error) {
		if b.done[id] == nil {
			b.done[id] = make(map[string]bool)
			for _, c := range charges {
				one := []stint.Layer{{Bound: c.Bound.(*sharedBound).Bound, Key: c.Key}}
				_, reservation, err := b.Store.Reserve(ctx, one, 0, time.Minute)
				if err == nil {
					_, err = b.Store.Settle(ctx, reservation, c.Units)
				}
				if err != nil {
					return struct{}{}, err
				}
			}
		}
		return struct{}{}, nil
	})
	return err
}

// Debts of many keys are charged with few calls, and each once, however often
// answers are lost.
func TestPostingsBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatched()
		n := newNode(t, s, fallback.Options{}, limit(t, "10 per hour fixed_window"))
		s.fail(errGone)
		const keys = 2000
		for i := range keys {
			n.pass(t, fmt.Sprint(i), 1+i%4)
		}
		if err := n.Reset(t.Context(), "17"); err == nil {
			t.Error("reset in a store that is gone")
		}
		for range 40 { // cut in and out while the debts are being posted
			s.heal()
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			s.after.Store(true)
			s.fail(fmt.Errorf("%w: reset", stint.ErrAmbiguous))
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		}
		s.heal()
		n.pass(t, "0", 2)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for i := range keys {
			want := int64(9 - i%4)
			if i == 0 {
				want -= 2
			}
			if got := remaining(t, n.Limiter, fmt.Sprint(i)); got != want && i != 17 {
				t.Errorf("%d remain to key %d, want %d", got, i, want)
			}
		}
		if st := n.store.Stats(); st.Owing != 0 || st.Posted+st.Forgiven < 4995 || st.Forgiven != 0 {
			t.Errorf("%+v", st)
		}
		if s.calls > 200 || s.most < 400 {
			t.Errorf("%d calls of at most %d keys", s.calls, s.most)
		}
	})
}

// What cannot be posted before a posting is forgotten is posted anew if it was
// surely not charged, and is not counted as charged otherwise.
func TestPostingsExpire(t *testing.T) {
	for name, stuck := range map[string]bool{"not executed": true, "ambiguous": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fallback.Options{}, "10 per hour fixed_window", func(t *testing.T, s *shared, n node) {
				s.fail(errGone)
				n.pass(t, "a", 4)
				if stuck {
					s.stuck.Store(true)
				} else {
					s.loses.Store(true)
				}
				s.heal()
				time.Sleep(5 * time.Minute)
				s.stuck.Store(false)
				s.loses.Store(false)
				time.Sleep(time.Second)
				synctest.Wait()
				if got := remaining(t, n.Limiter, "a"); got != 6 {
					t.Errorf("%d remain, want 6", got)
				}
				want := fallback.Stats{Posted: 4}
				if !stuck {
					want = fallback.Stats{Forgiven: 4} // it was charged, but the process cannot know
				}
				st := n.store.Stats()
				if st.Posted != want.Posted || st.Forgiven != want.Forgiven || st.Owing != 0 {
					t.Errorf("%+v, want %+v", st, want)
				}
			})
		})
	}
}

// A shared store that was closed takes no debts any more: they are forgiven, not
// kept and tried for ever.
func TestDebtsOfClosed(t *testing.T) {
	for name, s := range map[string]interface {
		stint.Store
		fail(error)
		heal()
	}{"together": newBatched(), "one by one": newShared()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, s, fallback.Options{}, limit(t, "10 per hour"))
				s.fail(stint.ErrClosed)
				n.pass(t, "a", 4)
				time.Sleep(time.Minute)
				if st := n.store.Stats(); st.Owing != 0 || st.Forgiven != 4 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// What time has forgiven during an outage is not charged when it ends, whether a first
// posting failed or its answer was lost.
func TestPostingsAfterLong(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		outage time.Duration
	}{"not executed": {errGone, 2 * time.Hour}, "ambiguous": {stint.ErrAmbiguous, 4 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBatched()
				n := newNode(t, s, fallback.Options{}, limit(t, "10 per minute"))
				s.fail(errGone)
				n.pass(t, "a", 10)
				time.Sleep(200 * time.Millisecond) // the first try
				s.fail(test.err)
				time.Sleep(test.outage)
				s.healAndPost()
				if got, st := remaining(t, n.Limiter, "a"), n.store.Stats(); got != 10 || st.Owing != 0 {
					t.Errorf("%d remain, want 10: %+v", got, st)
				}
			})
		})
	}
}

// A sided store has keys on two servers, one of which may be away.
type sided struct {
	*batched
	mu   sync.Mutex
	away map[string]error // by key
}

// with does something while no charge is under way.
func (s *sided) with(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *sided) Charge(ctx context.Context, id string, charges []fallback.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := &fallback.ChargeError{Each: make([]error, len(charges))}
	for i, c := range charges {
		if errs.Each[i] = s.away[c.Key]; errs.Each[i] == nil {
			errs.Each[i] = s.batched.Charge(ctx, id+c.Key, charges[i:i+1])
		}
	}
	if len(errs.Unwrap()) == 0 {
		return nil
	}
	return errs
}

// A server that is away for longer than postings are remembered keeps no other debts
// from being charged, and those once; its own are charged when it is back, unless they
// may have been.
func TestPostingsOneServerAway(t *testing.T) {
	for name, lost := range map[string]bool{"not executed": false, "ambiguous": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := errGone
				if lost {
					err = fmt.Errorf("%w: reset", stint.ErrAmbiguous)
				}
				s := &sided{batched: newBatched(), away: map[string]error{"away": err}}
				n := newNode(t, s, fallback.Options{}, limit(t, "100 per 24h"))
				s.fail(errGone)
				n.pass(t, "away", 7)
				n.pass(t, "well", 5)
				s.heal()
				time.Sleep(time.Second)
				s.fail(errGone)
				n.pass(t, "well", 5)
				n.pass(t, "late", 5)
				s.heal()
				time.Sleep(20 * time.Minute)
				s.with(func() { clear(s.done) }) // the ids are forgotten
				time.Sleep(time.Minute)
				for key, want := range map[string]int64{"well": 90, "late": 95} {
					if got := remaining(t, n.Limiter, key); got < want || got > want+2 { // after 21 minutes
						t.Errorf("%d remain to %s, want %d", got, key, want)
					}
				}
				s.with(func() { clear(s.away) })
				time.Sleep(time.Second)
				synctest.Wait()
				st := n.store.Stats()
				want := fallback.Stats{Posted: 15 + 6, Degraded: st.Degraded, Failed: st.Failed} // a unit has drained
				if lost {
					want.Posted, want.Forgiven = 15, 7
				}
				if st != want {
					t.Errorf("%+v, want %+v", st, want)
				}
			})
		})
	}
}
