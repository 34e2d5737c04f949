package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/storetest"
)

// shared is a store that several processes share, and that can be cut off.
type shared struct {
	stint.Store
	cut   atomic.Pointer[error] // what calls fail with; nil while it is well
	after atomic.Bool           // fail once the call has been carried out
	loses atomic.Bool           // answers of Settle, and nothing else
	stuck atomic.Bool           // Settle fails, and is not carried out
	calls atomic.Int64
}

func newShared() *shared { return &shared{Store: memstore.New(memstore.Options{})} }

func (s *shared) fail(err error) { s.cut.Store(&err) }
func (s *shared) heal()          { s.cut.Store(nil) }

// healAndPost heals, in a bubble, and waits for what is owed to be posted.
func (s *shared) healAndPost() {
	s.heal()
	time.Sleep(time.Second)
	synctest.Wait()
}

// call carries out a call, or fails it.
func call[T any](s *shared, do func() (T, error)) (out T, err error) {
	s.calls.Add(1)
	cut := s.cut.Load()
	if cut == nil || s.after.Load() {
		out, err = do()
	}
	if cut != nil {
		var none T
		return none, *cut
	}
	return out, err
}

type sharedBound struct {
	stint.Bound
	of *shared
}

func (s *shared) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return &sharedBound{b, s}, err
}

func (b *sharedBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	return call(b.of, func() (stint.Decision, error) { return b.Bound.Decide(ctx, op, key, cost) })
}

func inner(layers []stint.Layer) []stint.Layer {
	out := append([]stint.Layer(nil), layers...)
	for i := range out {
		if b, ok := out[i].Bound.(*sharedBound); ok {
			out[i].Bound = b.Bound
		}
	}
	return out
}

func (s *shared) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	return call(s, func() (stint.Decision, error) { return s.Store.Decide(ctx, op, inner(layers), cost) })
}

func (s *shared) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (d stint.Decision, id stint.ReservationID, err error) {
	d, err = call(s, func() (stint.Decision, error) {
		d, t, err := s.Store.Reserve(ctx, inner(layers), cost, ttl)
		id = t
		return d, err
	})
	if errors.Is(err, stint.ErrAmbiguous) {
		err = &stint.LostReservation{ID: id, Err: err}
	}
	if err != nil {
		id = ""
	}
	return d, id, err
}

func (s *shared) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if s.stuck.Load() {
		return stint.Decision{}, errGone
	}
	if s.loses.Load() {
		_, err := s.Store.Settle(ctx, id, cost)
		return stint.Decision{}, errors.Join(stint.ErrAmbiguous, err)
	}
	return call(s, func() (stint.Decision, error) { return s.Store.Settle(ctx, id, cost) })
}

func (s *shared) Refund(ctx context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	return call(s, func() (stint.Decision, error) { return s.Store.Refund(ctx, inner(layers), cost) })
}

func (s *shared) Reset(ctx context.Context, layers []stint.Layer) error {
	_, err := call(s, func() (struct{}, error) { return struct{}{}, s.Store.Reset(ctx, inner(layers)) })
	return err
}

func (s *shared) Block(ctx context.Context, layers []stint.Layer, d time.Duration) error {
	_, err := call(s, func() (struct{}, error) { return struct{}{}, s.Store.(stint.BlockStore).Block(ctx, inner(layers), d) })
	return err
}

var errGone = errors.New("connection refused")

// A shared store that is well is answered for word by word.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB, now func() int64) stint.Store {
		return fallback.New(memstore.New(memstore.Options{Now: now}),
			fallback.Options{Local: memstore.New(memstore.Options{Now: now})})
	})
}

// node is one process with its limiter.
type node struct {
	*stint.Limiter
	store *fallback.Store
}

func newNode(t *testing.T, s stint.Store, o fallback.Options, limits ...stint.Limit) node {
	t.Helper()
	store := fallback.New(s, o)
	l, err := stint.NewLimiter(store, "test", limits...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // the test may have
	return node{l, store}
}

// bubble runs a test of a process with one limit on a shared store, by virtual time.
func bubble(t *testing.T, o fallback.Options, text string, test func(t *testing.T, s *shared, n node)) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		test(t, s, newNode(t, s, o, limit(t, text)))
	})
}

// eachKind is bubble with a limit of each kind whose units still count after a moment
// without time.
func eachKind(t *testing.T, test func(t *testing.T, s *shared, n node)) {
	for _, text := range kinds {
		t.Run(text, func(t *testing.T) { bubble(t, fallback.Options{}, text, test) })
	}
}

// pass takes one unit the given number of times, and returns how many passed.
func (n node) pass(t *testing.T, key string, times int) (passed int64) {
	t.Helper()
	for range times {
		d, err := n.Take(t.Context(), key, 1)
		if err != nil {
			t.Fatalf("a call without an answer: %v", err)
		}
		passed += d.Taken
	}
	return passed
}

func remaining(t *testing.T, l *stint.Limiter, key string) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

var kinds = []string{
	"10 per hour", "10 per hour token_bucket_interval", "10 per hour leaky_queue burst 9", "10 per hour fixed_window", "10 per hour fixed_window from first",
	"10 per hour sliding_log", "10 per hour sliding_counter", "10 per hour sliding_buckets",
}

func limit(t *testing.T, text string) stint.Limit {
	t.Helper()
	l, err := stint.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A failure grants no fresh burst, and what passed meanwhile is owed.
func TestFailureMintsNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shared, n node) {
		if got := n.pass(t, "a", 6); got != 6 {
			t.Fatalf("%d of 6 passed", got)
		}
		s.fail(errGone)
		if got := n.pass(t, "a", 6); got != 4 {
			t.Errorf("%d passed while the store was gone, want the 4 that were left", got)
		}
		if st := n.store.Stats(); !st.Degraded || st.Failed != 6 || st.Owing != 1 {
			t.Errorf("while it is gone: %+v", st)
		}
		s.healAndPost()
		if got := remaining(t, n.Limiter, "a"); got != 0 {
			t.Errorf("%d remain in the shared store: the debt was not charged", got)
		}
		if st := n.store.Stats(); st.Owing != 0 || st.Posted != 4 || st.Degraded {
			t.Errorf("after it: %+v", st)
		}
	})
}

// What time has forgiven meanwhile is not charged any more, nor waited for.
func TestOldDebtIsForgiven(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		n.pass(t, "a", 10)
		time.Sleep(3 * time.Hour)
		s.healAndPost()
		if got := remaining(t, n.Limiter, "a"); got != 10 {
			t.Errorf("%d of 10 remain", got)
		}
		if st := n.store.Stats(); st.Posted != 0 || st.Owing != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// With PostByCaller what is owed is charged when the caller says so, and never
// else.
func TestPostByCaller(t *testing.T) {
	bubble(t, fallback.Options{PostByCaller: true}, "10/h", func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		n.pass(t, "a", 4)
		n.store.Post()
		s.heal()
		time.Sleep(time.Minute)
		if st := n.store.Stats(); st.Posted != 0 || st.Owing != 1 {
			t.Errorf("before Post: %+v", st)
		}
		n.store.Post()
		if st := n.store.Stats(); st.Posted != 4 || st.Owing != 0 {
			t.Errorf("after Post: %+v", st)
		}
		if got := remaining(t, n.Limiter, "a"); got != 6 {
			t.Errorf("%d of 10 remain", got)
		}
	})
}

// A call whose answer was lost may have been charged: it is not owed as well.
func TestAmbiguousIsChargedOnce(t *testing.T) {
	bubble(t, fallback.Options{}, "10 per hour", func(t *testing.T, s *shared, n node) {
		s.after.Store(true)
		s.fail(fmt.Errorf("%w: deadline", stint.ErrAmbiguous))
		if got := n.pass(t, "a", 3); got != 3 {
			t.Errorf("%d of 3 passed", got)
		}
		s.healAndPost()
		if got := remaining(t, n.Limiter, "a"); got != 7 {
			t.Errorf("%d remain, want 7: each call is charged once", got)
		}
	})
}

// A posting whose answers are lost, again and again, counts once.
func TestPostingCountsOnce(t *testing.T) {
	bubble(t, fallback.Options{}, "10 per hour fixed_window", func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		n.pass(t, "a", 4)
		s.heal()
		for range 40 { // cut in and out while the debt is being posted
			time.Sleep(100 * time.Millisecond)
			s.after.Store(true)
			s.fail(fmt.Errorf("%w: reset", stint.ErrAmbiguous))
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			s.heal()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := remaining(t, n.Limiter, "a"); got != 6 {
			t.Errorf("%d remain, want 6", got)
		}
	})
}

// Nor does one whose reservation was answered, and whose settling was not.
func TestSettlingCountsOnce(t *testing.T) {
	bubble(t, fallback.Options{}, "10 per hour fixed_window", func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		n.pass(t, "a", 4)
		s.loses.Store(true)
		s.heal()
		time.Sleep(5 * time.Second) // tried again and again
		n.pass(t, "a", 1)
		s.fail(errGone)
		n.pass(t, "a", 2) // a further debt
		s.heal()
		time.Sleep(5 * time.Second)
		s.loses.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := remaining(t, n.Limiter, "a"); got != 3 {
			t.Errorf("%d remain, want 10 − 4 − 1 − 2", got)
		}
		if st := n.store.Stats(); st.Posted != 6 || st.Owing != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestModes(t *testing.T) {
	for _, c := range []struct {
		mode    fallback.Mode
		allowed int64
		retry   stint.Wait
		at      int // the tightest limit
	}{
		{fallback.Local, 10, stint.Wait(6 * time.Minute), 0},
		{fallback.Open, 20, 0, -1},
		{fallback.Closed, 0, stint.Wait(time.Second), -1},
	} {
		t.Run(fmt.Sprint(c.mode), func(t *testing.T) {
			bubble(t, fallback.Options{Mode: c.mode}, "10 per hour", func(t *testing.T, s *shared, n node) {
				s.fail(errGone)
				passed := int64(0)
				var last stint.Decision
				for range 20 {
					var err error
					if last, err = n.Take(t.Context(), "a", 1); err != nil {
						t.Fatal(err)
					}
					if last.Allowed {
						passed++
					}
				}
				if passed != c.allowed || last.RetryAfter != c.retry || last.Tightest != c.at {
					t.Errorf("%d passed and the last waits %v by limit %d, want %d, %v and %d", passed, last.RetryAfter, last.Tightest, c.allowed, c.retry, c.at)
				}
			})
		})
	}
}

// Several processes without their store let through together at most the
// limit, plus one unit each where shares are rounded up, whatever the kind.
func TestNodesWithinLimit(t *testing.T) {
	for _, text := range append(kinds, "10 per hour burst 1", "2 per hour fixed_window") {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const nodes = 3
				s := newShared()
				s.fail(errGone) // from the start
				l := limit(t, text)
				total := int64(0)
				for range nodes {
					n := newNode(t, s, fallback.Options{Nodes: nodes}, l)
					got := n.pass(t, "a", 50)
					if got == 0 {
						t.Error("a node lets nothing through")
					}
					total += got
				}
				if most := l.Capacity() + nodes; total > most {
					t.Errorf("%d passed on %d nodes, at most %d may", total, nodes, most)
				}
			})
		})
	}
}

// Local reservations settle locally; the shared store's are settled when it is back, as
// was said while it was not.
func TestReservations(t *testing.T) {
	bubble(t, fallback.Options{}, "10 per hour sliding_log", func(t *testing.T, s *shared, n node) {
		_, first, err := n.Reserve(t.Context(), "a", 4, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		s.fail(errGone)
		if d, err := first.Settle(t.Context(), 1); err != nil || !d.Allowed {
			t.Errorf("settled in a store that is gone: %+v, %v", d, err)
		}
		d, second, err := n.Reserve(t.Context(), "a", 4, time.Hour)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if d, err = second.Settle(t.Context(), 1); err != nil || d.Remaining != 8 {
			t.Errorf("settled locally: %+v, %v", d, err)
		}
		synctest.Wait() // for a round that has begun: the next one settles before it posts
		s.heal()
		time.Sleep(time.Second)
		if d, err = n.Peek(t.Context(), "a", 1); err != nil || d.Remaining != 8 {
			t.Errorf("%+v, %v; want 10 − 1 − 1 to remain", d, err)
		}
		if d, err = first.Settle(t.Context(), 7); err != nil || d.Remaining != 9 {
			t.Errorf("settled again: %+v, %v; want the answer of the first time", d, err)
		}
	})
}

// A reservation is raised in the store that made it. Elsewhere nobody knows whether it still
// exists, and the raise is a reservation like any other.
func TestRaise(t *testing.T) {
	bubble(t, fallback.Options{}, "10 per hour sliding_log", func(t *testing.T, s *shared, n node) {
		b, err := n.store.Bind("raised", limit(t, "10 per hour sliding_log"))
		if err != nil {
			t.Fatal(err)
		}
		layer := stint.Layer{Bound: b, Key: "a"}
		raise := func(id stint.ReservationID) (stint.ReservationID, error) {
			layer.Raises = id
			_, raised, err := n.store.Reserve(t.Context(), []stint.Layer{layer}, 1, time.Hour)
			return raised, err
		}
		first, err := raise("")
		if err != nil {
			t.Fatal(err)
		}
		s.fail(errGone)
		local, err := raise(first)
		if err != nil {
			t.Fatal("where it was not made:", err)
		}
		if _, err = raise(local); err != nil {
			t.Fatal(err)
		}
		if _, err = raise(local + "gone"); !errors.Is(err, stint.ErrReservation) {
			t.Error("one that does not exist:", err)
		}
		s.heal()
		if _, err = raise(local); err != nil {
			t.Fatal("where it was not made:", err)
		}
	})
}

// What is settled above its reservation while the shared store is gone is charged to it
// once: of reservations that either store made, also when the shared one has forgotten its
// own, or has done what it did not answer.
func TestSettledAbove(t *testing.T) {
	for name, c := range map[string]struct {
		before, lost, ended bool // it was reserved before the outage; the answer is lost; it has ended
		left                int64
	}{
		"reserved meanwhile":   {left: 100 - 9 - 1},
		"reserved before":      {before: true, left: 100 - 9 - 1},
		"ended before it ends": {before: true, ended: true, left: 100 - 9 - 1},
		"done, and not known":  {before: true, lost: true, left: 100 - 9 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fallback.Options{}, "100 per 10000h sliding_log", func(t *testing.T, s *shared, n node) {
				reserve := func() *stint.Reservation {
					d, r, err := n.Reserve(t.Context(), "a", 1, time.Minute)
					if err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
					return r
				}
				var r *stint.Reservation
				if c.before {
					r = reserve()
				}
				if s.fail(errGone); c.lost {
					s.fail(stint.ErrAmbiguous)
					s.after.Store(true)
				}
				if !c.before {
					r = reserve()
				}
				if d, err := r.Settle(t.Context(), 9); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				if c.ended {
					time.Sleep(time.Hour)
				}
				s.after.Store(false)
				s.heal()
				if d, err := n.Take(t.Context(), "a", 1); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				time.Sleep(time.Minute)
				if d, err := n.Peek(t.Context(), "a", 1); err != nil || d.Remaining != c.left {
					t.Errorf("%+v, %v; want %d to remain", d, err, c.left)
				}
			})
		})
	}
}

// The caller's own mistakes and its impatience are no failure of the store.
func TestCallersFault(t *testing.T) {
	s := newShared()
	n := newNode(t, s, fallback.Options{}, limit(t, "10 per hour"))
	if _, err := n.Take(t.Context(), "a", -1); !errors.Is(err, stint.ErrCost) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.fail(context.Canceled)
	if _, err := n.Take(ctx, "a", 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if st := n.store.Stats(); st.Failed != 0 || st.Degraded {
		t.Errorf("%+v", st)
	}
	s.heal()
	if err := n.store.Close(); err != nil {
		t.Error(err)
	}
	if _, err := n.Take(t.Context(), "a", 1); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A flood of keys while the store is gone is remembered up to a bound.
func TestDebtsAreBounded(t *testing.T) {
	bubble(t, fallback.Options{MaxOwed: 100}, "10 per hour", func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		for i := range 1000 {
			n.pass(t, fmt.Sprint(i), 1)
		}
		if st := n.store.Stats(); st.Owing != 100 || st.Forgiven != 900 {
			t.Errorf("%+v", st)
		}
		if err := n.Reset(t.Context(), "1"); err == nil {
			t.Error("reset in a store that is gone")
		}
		if st := n.store.Stats(); st.Owing != 99 {
			t.Errorf("a key that was reset still owes: %+v", st)
		}
		s.heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := n.store.Stats(); st.Owing != 0 {
			t.Errorf("after a minute of quiet: %+v", st)
		}
		s.fail(errGone)
		for i := range 100 {
			n.pass(t, fmt.Sprint("later ", i), 1)
		}
		if st := n.store.Stats(); st.Owing != 100 || st.Forgiven != 900 {
			t.Errorf("the next time: %+v", st)
		}
	})
}

// OnChange is called for each failure and each recovery, once.
func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		s := newShared()
		n := newNode(t, s, fallback.Options{OnChange: func(err error) { reported = append(reported, err) }}, limit(t, "10 per hour"))
		n.pass(t, "a", 2)
		s.fail(errGone)
		n.pass(t, "a", 2)
		s.heal()
		n.pass(t, "a", 2)
		if len(reported) != 2 || !errors.Is(reported[0], errGone) || reported[1] != nil {
			t.Errorf("reported %v", reported)
		}
	})
}

// TestOwedInFull has the store away while a key uses more than the limit lets through: by
// denials that count, and by a settlement above its reservation. All of it is in the
// shared state afterwards, which limits of the same identity and more room see.
func TestOwedInFull(t *testing.T) {
	denials := func(t *testing.T, l *stint.Limiter) {
		for range 40 {
			if _, err := l.Take(t.Context(), "key", 1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Peek(t.Context(), "key", 1); err != nil {
			t.Fatal(err)
		}
	}
	settled := func(t *testing.T, l *stint.Limiter) {
		_, r, err := l.Reserve(t.Context(), "key", 1, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Settle(t.Context(), 40); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		limit, roomy string
		use          func(*testing.T, *stint.Limiter)
		want         int64
	}{
		{"10/1h fixed_window count_denied", "1000/1h fixed_window", denials, 40},
		{"10/1h sliding_counter count_denied", "1000/1h sliding_counter", denials, 40},
		{"10/1h sliding_log count_denied", "1000/1h sliding_log", denials, 40},
		{"10/1h sliding_buckets count_denied", "1000/1h sliding_buckets", denials, 40},
		{"10 per day in UTC count_denied", "1000 per day in UTC", denials, 40},
		{"10/1h fixed_window", "1000/1h fixed_window", denials, 10},
		{"10/1h", "1000/1h burst 1000", denials, 10},
		{"10/1h debt 100", "10/1h burst 1000", settled, 40},
		{"10/1h", "10/1h burst 1000", settled, 20},
		{"10/1h leaky_queue debt 100", "10/1h burst 1000 leaky_queue", settled, 40},
		{"10/1h token_bucket_interval debt 100", "10/1h burst 1000 token_bucket_interval", settled, 40},
		{"10/1h fixed_window", "1000/1h fixed_window", settled, 40},
		{"10/1h sliding_log", "1000/1h sliding_log", settled, 40},
	} {
		for _, nodes := range []int{1, 3} {
			t.Run(fmt.Sprint(c.limit, " of ", nodes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					main := newShared()
					store := fallback.New(main, fallback.Options{Nodes: nodes})
					defer store.Close()
					l, err := stint.NewLimiter(store, "api", limit(t, c.limit))
					if err != nil {
						t.Fatal(err)
					}
					main.fail(errors.New("gone"))
					c.use(t, l)
					main.heal()
					time.Sleep(2 * time.Second)
					synctest.Wait()
					b, err := main.Store.Bind("api", limit(t, c.roomy))
					if err != nil {
						t.Fatal(err)
					}
					d, err := b.Decide(t.Context(), meter.OpPeek, "key", 0)
					want := c.want
					if nodes > 1 && want < 40 {
						want = (want + int64(nodes) - 1) / int64(nodes) // what a share lets through
					}
					if used := d.Limit - d.Remaining; err != nil || used < want-1 || used > want {
						t.Errorf("%d are in use, %v, want %d", used, err, want)
					}
				})
			})
		}
	}
}

// While the shared store is away, a process bans by its own denials, and no longer than the
// limit says; what the shared store has banned stays so when it is back.
func TestBanWhileAway(t *testing.T) {
	bubble(t, fallback.Options{}, "4/1m ban 1h", func(t *testing.T, s *shared, n node) {
		bans := func(key string, want time.Duration) {
			t.Helper()
			d, err := n.Take(t.Context(), key, 1)
			if err != nil || d.Banned != (want > 0) || d.Banned && time.Duration(d.RetryAfter) != want {
				t.Errorf("%s: %+v, %v; banned for %v", key, d, err, want)
			}
		}
		n.pass(t, "a", 5)
		bans("a", time.Hour)
		time.Sleep(10 * time.Minute)
		s.fail(errGone)
		n.pass(t, "b", 5)
		time.Sleep(10 * time.Minute)
		bans("b", 50*time.Minute)
		s.heal()
		bans("a", 40*time.Minute)
		time.Sleep(time.Second) // what b owed has worn off, though its ban here lasts
		bans("b", 0)
	})
}

// A process blocks in both stores, so that a failure of the shared one frees nobody. While it
// fails, the process blocks by itself, and says that others do not know.
func TestBlockWhileAway(t *testing.T) {
	bubble(t, fallback.Options{}, "4/1m ban 1s", func(t *testing.T, s *shared, n node) {
		blocked := func(key string, want time.Duration) {
			t.Helper()
			d, err := n.Take(t.Context(), key, 1)
			if err != nil || d.Banned != (want > 0) || time.Duration(d.RetryAfter) != want {
				t.Errorf("%s: %+v, %v; blocked for %v", key, d, err, want)
			}
		}
		if err := n.Block(t.Context(), "a", time.Hour); err != nil {
			t.Fatal(err)
		}
		blocked("a", time.Hour)
		s.fail(errGone)
		blocked("a", time.Hour)
		if err := n.Block(t.Context(), "b", time.Hour); !errors.Is(err, errGone) {
			t.Errorf("in a store that is gone: %v", err)
		}
		blocked("b", time.Hour)
		s.heal()
		blocked("b", 0)
		if err := errors.Join(n.Unblock(t.Context(), "a"), n.Unblock(t.Context(), "b")); err != nil {
			t.Error(err)
		}
		blocked("a", 0)
		s.fail(errGone)
		blocked("a", 0)
		blocked("b", 0)
	})
}
