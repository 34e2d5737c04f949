package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

var bg = context.Background()

// limiterOf returns a limiter of the limits on a store of its own.
func limiterOf(t testing.TB, limits ...string) *stint.Limiter {
	t.Helper()
	return limiterOn(t, memstore.New(memstore.Options{}), limits...)
}

func limiterOn(t testing.TB, store stint.Store, limits ...string) *stint.Limiter {
	t.Helper()
	var ls []stint.Limit
	for _, text := range limits {
		ls = append(ls, made.Limit(t, text))
	}
	return made.Limiter(t, store, "test", ls...)
}

// must takes cost units of "k", which have to pass.
func must(t testing.TB, l *stint.Limiter, cost int64) {
	t.Helper()
	if d, err := l.Take(bg, "k", cost); err != nil || !d.Allowed {
		t.Fatalf("take %d: %+v, %v", cost, d, err)
	}
}

// empty checks that no waiter is left in a line.
func empty(t testing.TB, l *stint.Limiter) {
	t.Helper()
	synctest.Wait()
	if waiters, keys := l.Waiting(); waiters != 0 || keys != 0 {
		t.Errorf("%d waiters left in %d lines", waiters, keys)
	}
}

// A transcript is what happened, and when, in a bubble.
type transcript struct {
	mu    sync.Mutex
	begin time.Time
	lines []string
}

func newTranscript() *transcript { return &transcript{begin: time.Now()} }

func (tr *transcript) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, fmt.Sprintf("%v ", time.Since(tr.begin))+fmt.Sprintf(format, args...))
}

// check compares with the lines that are wanted. What happens at one moment may be
// written in any order: goroutines that are woken together run in any.
func (tr *transcript) check(t testing.TB, want string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	if !slices.Equal(byMoment(tr.lines), byMoment(lines)) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(tr.lines, "\n"), strings.Join(lines, "\n"))
	}
}

// byMoment returns lines with those of one moment sorted.
func byMoment(lines []string) []string {
	lines = slices.Clone(lines)
	for from, to := 0, 0; from < len(lines); from = to {
		at, _, _ := strings.Cut(lines[from], " ")
		for to++; to < len(lines) && strings.HasPrefix(lines[to], at+" "); to++ {
		}
		slices.Sort(lines[from:to])
	}
	return lines
}

// outcome is an error in a word or two.
func outcome(err error) string {
	var early *stint.WaitError
	switch {
	case err == nil:
		return "passes"
	case errors.As(err, &early) && early.Decision.RetryAfter == stint.Never:
		return "never"
	case errors.As(err, &early):
		return "gives up"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	}
	return err.Error()
}

// A caller waits for "k" at a moment of a scenario.
type caller struct {
	name   string
	at     time.Duration // arrives
	cost   int64
	within time.Duration // its deadline after arrival, if not 0
	cancel time.Duration // the moment it is cancelled, if not 0
}

// scenario lets callers wait and writes down what becomes of them.
func scenario(l *stint.Limiter, callers []caller) *transcript {
	tr := newTranscript()
	var wg sync.WaitGroup
	for _, c := range callers {
		wg.Go(func() {
			time.Sleep(c.at)
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			if c.within > 0 {
				var stop func()
				ctx, stop = context.WithTimeout(ctx, c.within)
				defer stop()
			}
			if c.cancel > 0 {
				stop := time.AfterFunc(c.cancel-c.at, cancel)
				defer stop.Stop()
			}
			err := l.Wait(ctx, "k", c.cost)
			tr.add("%s %s", c.name, outcome(err))
		})
	}
	wg.Wait()
	return tr
}

const ms = time.Millisecond

// split returns the limits of a list that is divided by semicolons.
func split(limits string) []string { return strings.Split(limits, "; ") }

func TestWaitScenarios(t *testing.T) {
	tests := []struct {
		name    string
		limit   string // several are divided by ;
		taken   int64  // from the start
		callers []caller
		want    string
	}{
		{"bucket", "1/s burst 1", 0, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 0, 0}, {"c", 2 * ms, 1, 0, 0},
		}, `0s a passes
			1s b passes
			2s c passes`},
		{"a small cost does not overtake", "1/s burst 5", 5, []caller{
			{"five", 0, 5, 0, 0}, {"one", 1 * ms, 1, 0, 0},
		}, `5s five passes
			6s one passes`},
		{"a window opens for as many as fit", "2/s fixed_window", 2, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 0, 0}, {"c", 2 * ms, 1, 0, 0},
		}, `1s a passes
			1s b passes
			2s c passes`},
		{"cancelled in the middle of a bucket's line", "1/s burst 1", 1, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 0, 1500 * ms}, {"c", 2 * ms, 1, 0, 0},
		}, `1s a passes
			1.5s b cancelled
			2s c passes`},
		{"the head is cancelled", "1/s burst 3", 3, []caller{
			{"three", 0, 3, 0, 1500 * ms}, {"one", 1 * ms, 1, 0, 0},
		}, `1.5s three cancelled
			1.5s one passes`},
		{"queue", "1/s leaky_queue burst 3", 0, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 0, 0}, {"c", 2 * ms, 1, 0, 0},
		}, `0s a passes
			1s b passes
			2s c passes`},
		{"cancelled in the middle of a queue", "1/s leaky_queue burst 9", 1, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 0, 1500 * ms}, {"c", 2 * ms, 1, 0, 0}, {"d", 3 * ms, 1, 0, 0},
			{"late", 1600 * ms, 1, 0, 0},
		}, `1s a passes
			1.5s b cancelled
			2s c passes
			3s d passes
			4s late passes`},
		{"cancelled where costs differ", "1/s leaky_queue burst 9", 1, []caller{
			{"two", 0, 2, 0, 500 * ms}, {"three", 1 * ms, 3, 0, 0}, {"one", 2 * ms, 1, 0, 0}, {"late", 600 * ms, 1, 0, 0},
		}, `500ms two cancelled
			1s three passes
			4s one passes
			5s late passes`},
		{"a queue that is full lets wait in line", "1/s leaky_queue burst 1", 1, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 0, 0}, {"c", 2 * ms, 1, 0, 0}, {"d", 3 * ms, 1, 0, 0},
		}, `1s a passes
			2s b passes
			3s c passes
			4s d passes`},
		{"a place that is freed goes to who waits for room", "1/s leaky_queue burst 1", 1, []caller{
			{"a", 0, 1, 0, 500 * ms}, {"b", 1 * ms, 1, 0, 0}, {"c", 2 * ms, 1, 0, 0},
		}, `500ms a cancelled
			1s b passes
			2s c passes`},
		{"room that is freed is seen at once", "1/s leaky_queue burst 9", 1, []caller{
			{"five", 0, 5, 0, 500 * ms}, {"ten", 1 * ms, 10, 0, 0},
		}, `500ms five cancelled
			1s ten passes`},
		{"deadline in a bucket", "1/s burst 1", 1, []caller{
			{"early", 0, 1, 999 * ms, 0}, {"exact", 1 * ms, 1, 999 * ms, 0},
			{"behind, early", 2 * ms, 1, 1997 * ms, 0}, {"behind, exact", 3 * ms, 1, 1997 * ms, 0},
		}, `0s early gives up
			2ms behind, early gives up
			1s exact passes
			2s behind, exact passes`},
		{"deadline behind more than the burst", "1/s burst 2", 2, []caller{
			{"a", 0, 2, 0, 0}, {"b", 1 * ms, 2, 0, 0},
			{"early", 2 * ms, 1, 4997 * ms, 0}, {"exact", 3 * ms, 1, 4997 * ms, 0},
		}, `2ms early gives up
			2s a passes
			4s b passes
			5s exact passes`},
		{"deadline in a queue", "1/s leaky_queue burst 2", 1, []caller{
			{"a", 0, 1, 0, 0},
			{"early", 1 * ms, 1, 1998 * ms, 0}, {"exact", 2 * ms, 1, 1998 * ms, 0},
			{"full, early", 3 * ms, 1, 2996 * ms, 0}, {"full, exact", 4 * ms, 1, 2996 * ms, 0},
		}, `1ms early gives up
			3ms full, early gives up
			1s a passes
			2s exact passes
			3s full, exact passes`},
		{"deadline in a window", "1/s fixed_window", 1, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 1500 * ms, 0}, {"c", 2 * ms, 1, 500 * ms, 0},
		}, `1ms b gives up
			2ms c gives up
			1s a passes`},
		{"never", "2/s burst 2", 2, []caller{
			{"a", 0, 1, 0, 0}, {"three", 1 * ms, 3, 0, 0}, {"b", 2 * ms, 1, 0, 0},
		}, `1ms three never
			500ms a passes
			1s b passes`},
		{"what is denied counts, waiting does not", "1/s sliding_log count_denied", 1, []caller{
			{"a", 500 * ms, 1, 0, 0}, {"b", 600 * ms, 1, 0, 0},
		}, `1s a passes
			2s b passes`},
		{"layers: the queue's pace and the log's count", "1/s leaky_queue burst 5; 2/10s sliding_log", 1, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 0, 0},
		}, `1s a passes
			10s b passes`},
		{"layers: a cancelled place is free in both", "1/s leaky_queue burst 5; 3/10s sliding_log", 1, []caller{
			{"a", 0, 1, 0, 500 * ms}, {"b", 1 * ms, 1, 0, 0}, {"c", 600 * ms, 1, 0, 0},
		}, `500ms a cancelled
			1s b passes
			2s c passes`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOf(t, split(tt.limit)...)
				if tt.taken > 0 {
					must(t, l, tt.taken)
				}
				scenario(l, tt.callers).check(t, tt.want)
				empty(t, l)
			})
		})
	}
}

func TestWaitFirstComeFirstServed(t *testing.T) {
	for _, limit := range []string{
		"5/s burst 1", "5/s burst 3", "5/s leaky_queue burst 30", "5/s leaky_queue burst 3", "5/s leaky_queue burst 0",
		"5/s fixed_window", "5/s fixed_window from first", "5/s sliding_log", "5/s sliding_counter", "5/s sliding_buckets", "5/s token_bucket_interval",
	} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOf(t, limit)
				var mu sync.Mutex
				var order []int
				var wg sync.WaitGroup
				for i := range 20 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * time.Microsecond)
						if err := l.Wait(bg, "k", 1); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					})
				}
				wg.Wait()
				// Those that pass at one instant may be seen in any order.
				burst := int(l.Limits()[0].Capacity())
				if strings.Contains(limit, "queue") || strings.Contains(limit, "burst 1") {
					burst = 1
				}
				for at, i := range order {
					if d := at - i; d >= burst || -d >= burst {
						t.Fatalf("order %v", order)
					}
				}
				if burst == 1 && !slices.IsSorted(order) {
					t.Errorf("order %v", order)
				}
				empty(t, l)
			})
		})
	}
}

// The kth start at 7 a minute is k·60/7 s, rounded up to the nanosecond, however
// many went before. (A bucket needs a burst above 1 for that: one that is full
// the moment it is asked has forgotten the part of a nanosecond.)
func TestWaitKeepsPaceWithoutDrift(t *testing.T) {
	for _, limit := range []string{"7/m burst 2", "7/m leaky_queue burst 3", "7/m leaky_queue burst 700"} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, begin := limiterOf(t, limit), time.Now()
				if l.Limits()[0].Algorithm() == meter.GCRA {
					must(t, l, 1)
				}
				var wg sync.WaitGroup
				var mu sync.Mutex
				var starts []time.Duration
				for range 10 {
					wg.Go(func() {
						for range 70 {
							if err := l.Wait(bg, "k", 1); err != nil {
								t.Error(err)
							}
							mu.Lock()
							starts = append(starts, time.Since(begin))
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				for k, at := range starts {
					if want := (time.Duration(k)*time.Minute + 6) / 7; at != want {
						t.Fatalf("start %d at %v, want %v", k, at, want)
					}
				}
			})
		})
	}
}

func TestWaitErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		l := limiterOn(t, store, "1/s burst 2")
		must(t, l, 2)
		done, cancel := context.WithCancel(bg)
		cancel()
		begin := time.Now()

		if err := l.Wait(bg, "k", -1); !errors.Is(err, stint.ErrCost) {
			t.Errorf("cost -1: %v", err)
		}
		if err := l.Wait(bg, "k", 0); err != nil {
			t.Errorf("cost 0: %v", err)
		}
		if err := l.Wait(done, "k", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("context done: %v", err)
		}
		var early *stint.WaitError
		err := l.Wait(bg, "k", 3)
		if !errors.As(err, &early) || early.Decision.RetryAfter != stint.Never || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("above the limit: %v", err)
		}
		soon, stop := context.WithTimeout(bg, time.Second)
		defer stop()
		err = l.Wait(soon, "k", 2)
		if !errors.As(err, &early) || early.Decision.RetryAfter != stint.Wait(2*time.Second) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("too late: %v", err)
		}
		if d, _ := l.Peek(bg, "k", 1); d.ResetAfter != 2*time.Second {
			t.Errorf("something was charged: %+v", d)
		}
		if time.Since(begin) != 0 {
			t.Errorf("waited %v", time.Since(begin))
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.Wait(bg, "k", 1); !errors.Is(err, stint.ErrClosed) {
			t.Errorf("closed store: %v", err)
		}
		empty(t, l)
	})
}

// TestWaitLowered lowers a limit below what some of a line need: they hear of it at once,
// wherever they stand, and nobody else does.
func TestWaitLowered(t *testing.T) {
	for _, text := range []string{"1/s burst 10", "10 per 10s fixed_window", "1/s burst 9 leaky_queue"} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			l := limiterOn(t, store, text)
			other := made.Limiter(t, store, "other", stint.PerSecond(100))
			must(t, l, 10)
			costs, ended := []int64{1, 2, 8, 1, 9}, make([]atomic.Int64, 5)
			begin := time.Now()
			for i, cost := range costs {
				go func() {
					var err error
					if i == 4 { // of two parts
						err = stint.All(other.Key("k").Cost(cost), l.Key("k").Cost(cost)).Wait(bg)
					} else {
						err = l.Wait(bg, "k", cost)
					}
					var never *stint.WaitError
					if cost > 5 && (!errors.As(err, &never) || never.Decision.RetryAfter != stint.Never) || cost <= 5 && err != nil {
						t.Errorf("%s, cost %d: %v", text, cost, err)
					}
					ended[i].Store(int64(time.Since(begin)))
				}()
				synctest.Wait()
			}
			time.Sleep(time.Millisecond)
			lower := strings.NewReplacer("10 per 10s", "5 per 10s", "burst 10", "burst 5", "burst 9", "burst 4").Replace(text)
			limit := made.Limit(t, lower)
			if err := l.SetLimits(limit); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for i := range ended {
				if at := time.Duration(ended[i].Load()); at != 0 && costs[i] <= 5 || at != time.Millisecond && costs[i] > 5 {
					t.Errorf("%s: the waiter of cost %d ended after %v", text, costs[i], at)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for i := range ended {
				if ended[i].Load() == 0 {
					t.Errorf("%s: the waiter of cost %d waits", text, costs[i])
				}
			}
		})
	}
}

// What another limiter of the name takes in between, the head of the line does not get; it
// tries again.
func TestWaitAfterTakesInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		l, other := limiterOn(t, store, "1/s burst 2"), limiterOn(t, store, "1/s burst 2")
		must(t, l, 2)
		go func() {
			time.Sleep(1500 * ms) // there is room for one, and not for the waiter
			must(t, other, 1)
		}()
		begin := time.Now()
		if err := l.Wait(bg, "k", 2); err != nil || time.Since(begin) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		empty(t, l)
	})
}

// Callers that gave up leave the key as if they had never come.
func TestWaitCancelledBurnsNothing(t *testing.T) {
	for _, limit := range []string{"10/s burst 10", "10/s leaky_queue burst 9", "10/s leaky_queue burst 2", "10/s sliding_log"} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOn(t, &slowStore{Store: memstore.New(memstore.Options{})}, limit)
				must(t, l, l.Limits()[0].Capacity())
				if strings.Contains(limit, "burst 9") {
					time.Sleep(500 * ms) // room for some
				}
				before, _ := l.Peek(bg, "k", 1)
				ctx, cancel := context.WithCancel(bg)
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						if err := l.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
							t.Errorf("%v", err)
						}
					})
				}
				synctest.Wait()
				cancel()
				wg.Wait()
				if after, _ := l.Peek(bg, "k", 1); after != before {
					t.Errorf("before %+v, after %+v", before, after)
				}
				empty(t, l)
			})
		})
	}
}

// Callers of Take keep the delay they got: places in line pass around them.
func TestWaitMovesUpAroundTakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "1/s leaky_queue burst 9")
		must(t, l, 1)
		tr := newTranscript()
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		wait := func(ctx context.Context, name string) {
			wg.Go(func() { tr.add("%s %s", name, outcome(l.Wait(ctx, "k", 1))) })
			synctest.Wait()
		}
		wait(ctx, "a")
		if d, _ := l.Take(bg, "k", 1); d.Delay != 2*time.Second {
			t.Errorf("reported %v", d.Delay)
		}
		wait(bg, "b")
		wait(bg, "c")
		cancel()
		wg.Wait()
		tr.check(t, `0s a cancelled
			1s b passes
			3s c passes`)
	})
}

// Without room for reservations Wait still paces, though places stay taken: others
// in line move into them.
func TestWaitWithoutReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOn(t, memstore.New(memstore.Options{MaxReservations: 1}), "1/s leaky_queue burst 9")
		must(t, l, 1)
		scenario(l, []caller{
			{"a", 0, 1, 0, 0}, {"b", 1 * ms, 1, 0, 500 * ms}, {"c", 2 * ms, 1, 0, 0}, {"d", 600 * ms, 1, 0, 0},
		}).check(t, `500ms b cancelled
			1s a passes
			2s c passes
			3s d passes`)
		empty(t, l)
	})
}

// slowStore takes its time to answer a Reserve, after it has charged it.
type slowStore struct {
	stint.Store
	takes time.Duration
}

func (s *slowStore) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	d, id, err := s.Store.Reserve(ctx, layers, cost, ttl)
	time.Sleep(s.takes)
	return d, id, err
}

// Settle fails when its context is over.
func (s *slowStore) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if err := ctx.Err(); err != nil {
		return stint.Decision{}, err
	}
	return s.Store.Settle(ctx, id, cost)
}

// slowLimits is a store whose limits take their time to answer.
type slowLimits struct{ slowStore }

func (s *slowLimits) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return &slowBound{b, s.takes}, err
}

type slowBound struct {
	stint.Bound
	takes time.Duration
}

func (b *slowBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	d, err := b.Bound.Decide(ctx, op, key, cost)
	time.Sleep(b.takes)
	return d, err
}

// Who arrives while the first in line is being decided looks ahead once that
// one was denied.
func TestWaitLooksAheadBehindADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOn(t, &slowLimits{slowStore{memstore.New(memstore.Options{}), 100 * ms}}, "1/s burst 1")
		scenario(l, []caller{
			{"first", 0, 1, 0, 0}, {"second", 150 * ms, 1, 0, 0}, // denied at 250ms, and in line at 350ms
			{"early", 310 * ms, 1, 500 * ms, 0}, {"gone", 320 * ms, 1, 0, 330 * ms}, {"early", 330 * ms, 1, 500 * ms, 0},
		}).check(t, `100ms first passes
			330ms gone cancelled
			450ms early gives up
			450ms early gives up
			1.2s second passes`)
		empty(t, l)
	})
}

// Who gives up while the store is being asked for the line still frees the
// place, and who is being asked for takes it over.
func TestWaitCancelledWhileTheStoreIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: memstore.New(memstore.Options{})}
		l := limiterOn(t, store, "1/s leaky_queue burst 9")
		must(t, l, 1)
		tr := newTranscript()
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		wait := func(ctx context.Context, name string) {
			wg.Go(func() { tr.add("%s %s", name, outcome(l.Wait(ctx, "k", 1))) })
			synctest.Wait()
		}
		wait(ctx, "a")
		store.takes = 100 * ms
		wait(bg, "b") // charged, but does not know it yet
		time.Sleep(50 * ms)
		cancel()
		wait(bg, "c")
		time.Sleep(200 * ms)
		if d, _ := l.Peek(bg, "k", 1); d.Delay != 3*time.Second-250*ms {
			t.Errorf("two wait, the next starts in %v", d.Delay)
		}
		wg.Wait()
		tr.check(t, `50ms a cancelled
			1s b passes
			2.1s c passes`)
		empty(t, l)
	})
}

func TestWaitKeysDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "1/s burst 1")
		must(t, l, 1)
		go l.Wait(bg, "k", 1)
		synctest.Wait()
		begin := time.Now()
		if err := l.Wait(bg, "other", 1); err != nil || time.Since(begin) != 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		time.Sleep(time.Second)
		empty(t, l)
	})
}

// Random arrivals and cancels on a queue start exactly when an ideal server
// would start them: the first in line once T has passed since the last start.
func TestWaitQueueEqualsModel(t *testing.T) {
	const n, gap = 60, 10 * ms
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			l := limiterOf(t, "100/s leaky_queue burst 100")
			callers := make([]caller, n)
			at := time.Duration(0)
			for i := range callers {
				at += time.Duration(1 + r.Int64N(int64(gap)))
				callers[i] = caller{name: fmt.Sprint(i), at: at, cost: 1}
				if r.IntN(3) == 0 {
					callers[i].cancel = at + time.Duration(1+r.Int64N(int64(20*gap)))
				}
			}
			want := make(map[string]bool)
			free := time.Duration(0)
			for _, c := range callers {
				start := max(free, c.at)
				if c.cancel > 0 && c.cancel < start {
					want[fmt.Sprintf("%v %s cancelled", c.cancel, c.name)] = true
					continue
				}
				want[fmt.Sprintf("%v %s passes", start, c.name)] = true
				free = start + gap
			}
			for _, line := range scenario(l, callers).lines {
				if !want[line] {
					t.Fatalf("seed %d: %s", seed, line)
				}
			}
			empty(t, l)
		})
	}
}

// Under a bucket a caller gives up on arrival if and only if it cannot make
// it, and who stays passes when rational arithmetic says.
func TestWaitBucketEqualsModel(t *testing.T) {
	const n = 60
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			burst := 1 + r.Int64N(6)
			l := limiterOf(t, fmt.Sprintf("7/s burst %d", burst))
			callers := make([]caller, n)
			at := time.Duration(0)
			for i := range callers {
				at += time.Duration(1 + r.IntN(int(200*ms)))
				callers[i] = caller{name: fmt.Sprint(i), at: at, cost: 1 + r.Int64N(burst)}
				if r.IntN(2) == 0 {
					callers[i].within = time.Duration(1 + r.Int64N(int64(3*time.Second)))
				}
			}
			want := make(map[string]bool)
			tat := new(big.Int) // in 1/7 ns
			last := time.Duration(0)
			for _, c := range callers {
				// Passes at the least t with max(tat, t) + c·T − t ≤ B·T, no
				// sooner than those before it.
				over := new(big.Int).Add(tat, big.NewInt((c.cost-burst)*int64(time.Second)))
				pass := max(c.at, last, time.Duration(new(big.Int).Div(over.Add(over, big.NewInt(6)), big.NewInt(7)).Int64()))
				if c.within > 0 && pass > c.at+c.within {
					want[fmt.Sprintf("%v %s gives up", c.at, c.name)] = true
					continue
				}
				want[fmt.Sprintf("%v %s passes", pass, c.name)] = true
				if since := big.NewInt(int64(c.at) * 7); tat.Cmp(since) < 0 {
					tat.Set(since) // as of its turn, which the clock rounds up
				}
				tat.Add(tat, big.NewInt(c.cost*int64(time.Second)))
				last = pass
			}
			for _, line := range scenario(l, callers).lines {
				if !want[line] {
					t.Fatalf("seed %d: %s", seed, line)
				}
			}
			empty(t, l)
		})
	}
}

// envelope checks that no stretch d holds more than burst + d/T starts.
func envelope(t *testing.T, starts []time.Duration, burst int, gap time.Duration) {
	t.Helper()
	slices.Sort(starts)
	for i := range starts {
		if j := i + burst; j < len(starts) && starts[j]-starts[i] < gap {
			t.Fatalf("starts %d and %d at %v and %v", i, j, starts[i], starts[j])
		}
	}
	for i := range starts {
		for j := i; j < len(starts); j++ {
			if extra := j - i + 1 - burst; extra > 0 && starts[j]-starts[i] < time.Duration(extra)*gap {
				t.Fatalf("%d starts from %v to %v", j-i+1, starts[i], starts[j])
			}
		}
	}
}

func TestWaitThousandWithRandomCancels(t *testing.T) {
	tests := []struct {
		limit string
		burst int
	}{
		{"100/s burst 1", 1}, {"100/s burst 5", 5},
		{"100/s leaky_queue burst 2000", 1}, {"100/s leaky_queue burst 50", 1}, {"100/s leaky_queue burst 0", 1},
	}
	for _, tt := range tests {
		t.Run(tt.limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, begin := limiterOf(t, tt.limit), time.Now()
				var mu sync.Mutex
				var starts []time.Duration
				var wg sync.WaitGroup
				for range 1000 {
					arrive := rand.N(2 * time.Second)
					patience := rand.N(20 * time.Second)
					wg.Go(func() {
						time.Sleep(arrive)
						ctx, cancel := context.WithCancel(bg)
						defer cancel()
						stop := time.AfterFunc(patience, cancel)
						defer stop.Stop()
						if l.Wait(ctx, "k", 1) == nil {
							mu.Lock()
							defer mu.Unlock()
							starts = append(starts, time.Since(begin))
						}
					})
				}
				wg.Wait()
				envelope(t, starts, tt.burst, 10*ms)
				// None waited while there was room: the last one would have
				// started at the pace from the first arrivals on.
				if most := starts[len(starts)-1] - starts[0]; len(starts) < int(most/(10*ms))-20 {
					t.Errorf("%d starts in %v", len(starts), most)
				}
				empty(t, l)
			})
		})
	}
}

// On the real clock and all cores: nothing deadlocks, nothing is charged twice.
func TestWaitUnderContention(t *testing.T) {
	for _, limit := range []string{"20000/s burst 1", "20000/s leaky_queue burst 100", "20000/s sliding_log; 20000/s leaky_queue burst 1000"} {
		t.Run(limit, func(t *testing.T) {
			l := limiterOf(t, strings.Split(limit, "; ")...)
			begin := time.Now()
			var wg sync.WaitGroup
			var mu sync.Mutex
			passed := 0
			for range 1000 {
				wg.Go(func() {
					ctx := bg
					if rand.IntN(2) == 0 {
						var cancel func()
						ctx, cancel = context.WithCancel(bg)
						stop := time.AfterFunc(time.Duration(rand.IntN(int(30*ms))), cancel)
						defer stop.Stop()
						defer cancel()
					}
					if rand.IntN(4) == 0 {
						var cancel func()
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(int(30*ms))))
						defer cancel()
					}
					if l.Wait(ctx, "k", 1) == nil {
						mu.Lock()
						defer mu.Unlock()
						passed++
					}
				})
			}
			wg.Wait()
			if most := 2 + int(time.Since(begin)/(50*time.Microsecond)); passed > most && len(l.Limits()) == 1 {
				t.Errorf("%d passed, at most %d", passed, most)
			}
			if waiters, keys := l.Waiting(); waiters != 0 || keys != 0 {
				t.Errorf("%d waiters left in %d lines", waiters, keys)
			}
		})
	}
}

// Compare with Take, which it should cost at most half as much again as.
func BenchmarkWaitPasses(b *testing.B) {
	for _, limit := range []string{"1_000_000_000/s", "1_000_000_000/s leaky_queue"} {
		b.Run("verb=take/"+limit, func(b *testing.B) {
			l := limiterOf(b, limit)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Take(bg, "k", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("verb=wait/"+limit, func(b *testing.B) {
			l := limiterOf(b, limit)
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Wait(bg, "k", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
