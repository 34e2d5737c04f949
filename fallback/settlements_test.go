package fallback_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
)

// TestSettledEverywhere settles reservations below, at and above what they reserved, while the
// shared store comes and goes. In the end both stores have charged what was settled, and what
// was reserved where nobody settled, unit by unit. (A leaky_queue keeps a place behind which others wait.)
func TestSettledEverywhere(t *testing.T) {
	texts := []string{
		"5000 per 1000h", "5000 per 1000h token_bucket_interval", "5000 per 1000h fixed_window", "5000 per 1000h fixed_window from first",
		"5000 per 1000h sliding_log", "5000 per 1000h sliding_buckets", "5000 per 1000h sliding_log ban 1h", "5000 per 1000h fixed_window count_denied",
	}
	for _, text := range texts {
		for seed := range uint64(20) {
			bubble(t, fallback.Options{}, text, func(t *testing.T, s *shared, n node) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				var open []*stint.Reservation
				var reserved []int64
				used, end := int64(0), time.Now()
				for range 150 {
					switch rnd.IntN(8) {
					case 0: // it is away, or its answers are lost, of calls that it carries out or not
						how := rnd.IntN(3)
						s.after.Store(how == 2)
						s.fail([]error{errGone, stint.ErrAmbiguous, stint.ErrAmbiguous}[how])
					case 1:
						s.healAndPost()
					case 2, 3, 4:
						cost := rnd.Int64N(6)
						d, r, err := n.Reserve(t.Context(), "a", cost, time.Hour)
						if err != nil || !d.Allowed {
							t.Fatal(d, err)
						}
						open, reserved = append(open, r), append(reserved, cost)
						end = time.Now().Add(time.Hour)
					default:
						if len(open) == 0 {
							continue
						}
						i, cost := rnd.IntN(len(open)), rnd.Int64N(8)
						if _, err := open[i].Settle(t.Context(), cost); err != nil {
							t.Fatal(err)
						}
						used += cost
						open[i], reserved[i] = open[len(open)-1], reserved[len(open)-1]
						open, reserved = open[:len(open)-1], reserved[:len(open)-1]
					}
				}
				for _, cost := range reserved { // nobody settles these
					used += cost
				}
				s.healAndPost()
				time.Sleep(time.Until(end) + time.Second)
				for _, where := range []string{"shared", "local"} {
					d, err := n.Peek(t.Context(), "a", 1)
					if err != nil {
						t.Fatal(err)
					}
					if got := 5000 - d.Remaining; got > used || got < used-10 { // what a bucket has got back in two hours
						t.Errorf("%s, seed %d: %d used in the %s store, want %d", text, seed, got, where, used)
					}
					s.fail(errGone)
				}
			})
		}
	}
}

// TestSettledOnce: what was settled while the shared store was away stands, though the reservation
// is cancelled or settled again before that store has heard of it, or is away again.
func TestSettledOnce(t *testing.T) {
	for _, again := range []int64{0, 7} {
		for _, away := range []bool{false, true} {
			eachKind(t, func(t *testing.T, s *shared, n node) {
				_, r, err := n.Reserve(t.Context(), "a", 5, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				s.fail(errGone)
				if _, err := r.Settle(t.Context(), 3); err != nil {
					t.Fatal(err)
				}
				if !away {
					s.heal()
				}
				if _, err := r.Settle(t.Context(), again); err != nil {
					t.Fatal(err)
				}
				s.healAndPost()
				for _, where := range []string{"shared", "local"} {
					if left := remaining(t, n.Limiter, "a"); left != 7 {
						t.Errorf("again at %d: %d left in the %s store, want 7", again, left, where)
					}
					s.fail(errGone)
				}
			})
		}
	}
}

// TestOutagesBanNobody has requests succeed whose failures alone would count, through outages and
// six at once when the store goes away: nobody is banned in either store.
func TestOutagesBanNobody(t *testing.T) {
	bubble(t, fallback.Options{}, "5 per 10m sliding_log ban 1h", func(t *testing.T, s *shared, n node) {
		begin := func() (*stint.Reservation, stint.Decision) {
			d, r, err := n.Reserve(t.Context(), "a", 1, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return r, d
		}
		for i := range 60 {
			switch s.after.Store(i%10 == 7); i % 10 {
			case 2:
				s.fail(errGone)
			case 7: // what it does is not heard
				s.fail(stint.ErrAmbiguous)
			}
			r, d := begin()
			if !d.Allowed {
				t.Fatalf("request %d: %+v", i, d)
			}
			if i%5 == 4 {
				s.healAndPost()
			}
			if _, err := r.Settle(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		var open []*stint.Reservation
		for range 5 {
			r, _ := begin()
			open = append(open, r)
		}
		s.fail(errGone)
		if _, d := begin(); d.Allowed || d.Banned {
			t.Errorf("beside five that are open: %+v", d)
		}
		for _, r := range open {
			if _, err := r.Settle(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, d := begin(); !d.Allowed {
			t.Errorf("after them: %+v", d)
		}
	})
}

// TestLongOutagesBanNobody is TestOutagesBanNobody for an outage in which what is open has ceased to
// excuse denials.
func TestLongOutagesBanNobody(t *testing.T) {
	for _, mode := range []fallback.Mode{fallback.Local, fallback.Open, fallback.Closed} {
		for _, failure := range []error{errGone, stint.ErrAmbiguous} {
			bubble(t, fallback.Options{Mode: mode}, "5 per 10m sliding_log ban 1h", func(t *testing.T, s *shared, n node) {
				if s.after.Store(true); errors.Is(failure, stint.ErrAmbiguous) {
					s.fail(failure) // it reserves, and nobody hears of it
				}
				var open []*stint.Reservation
				for range 5 {
					_, r, err := n.Reserve(t.Context(), "a", 1, time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, r)
				}
				s.after.Store(false)
				s.fail(errGone)
				time.Sleep(11 * time.Second)
				for _, r := range open {
					if r == nil {
						continue
					}
					if _, err := r.Settle(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait() // what is owed is tried once, in vain
				s.heal()
				if d, err := n.Take(t.Context(), "a", 1); err != nil || d.Banned || d.Allowed != (mode != fallback.Closed) {
					t.Errorf("mode %d, %v: %+v, %v", mode, failure, d, err)
				}
				s.healAndPost()
				want := int64(5)
				if mode == fallback.Local {
					want = 4
				}
				if left := remaining(t, n.Limiter, "a"); left != want {
					t.Errorf("mode %d, %v: %d left, want %d", mode, failure, left, want)
				}
			})
		}
	}
}

// TestExcusedNotOwed: a denial that what is open excuses in the local store is not counted in the shared
// one either.
func TestExcusedNotOwed(t *testing.T) {
	for _, long := range []bool{false, true} {
		bubble(t, fallback.Options{}, "5 per 10m sliding_log count_denied", func(t *testing.T, s *shared, n node) {
			n.pass(t, "a", 2)
			s.fail(errGone)
			var open []*stint.Reservation
			for range 3 {
				_, r, err := n.Reserve(t.Context(), "a", 1, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, r)
			}
			if long {
				time.Sleep(11 * time.Second) // they excuse nothing any more
			}
			if got := n.pass(t, "a", 1); got != 0 {
				t.Fatal("passed")
			}
			for _, r := range open {
				if _, err := r.Settle(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}
			s.healAndPost()
			want := int64(3)
			if long {
				want = 2
			}
			if left := remaining(t, n.Limiter, "a"); left != want {
				t.Errorf("long %v: %d left, want %d", long, left, want)
			}
		})
	}
}

// TestNeverOwed: what can never pass is counted, also while the shared store is away.
func TestNeverOwed(t *testing.T) {
	bubble(t, fallback.Options{}, "5 per 10m sliding_log count_denied", func(t *testing.T, s *shared, n node) {
		s.fail(errGone)
		if d, err := n.Take(t.Context(), "a", 6); err != nil || d.RetryAfter != stint.Never {
			t.Fatalf("%+v, %v", d, err)
		}
		s.healAndPost()
		if left := remaining(t, n.Limiter, "a"); left != 0 {
			t.Errorf("%d left, want 0", left)
		}
	})
}

// TestLostLapses: a reservation that the shared store made, but whose answer was lost, counts once if
// its time ends before that store can be told.
func TestLostLapses(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shared, n node) {
		s.stuck.Store(true) // the cancellation is not heard either
		s.after.Store(true)
		s.fail(stint.ErrAmbiguous)
		if _, _, err := n.Reserve(t.Context(), "a", 3, time.Minute); err != nil {
			t.Fatal(err)
		}
		s.after.Store(false)
		s.fail(errGone)
		s.stuck.Store(false)
		time.Sleep(61 * time.Second)
		s.healAndPost()
		if left := remaining(t, n.Limiter, "a"); left != 7 {
			t.Errorf("%d left, want 7", left)
		}
	})
}

// TestMirrorDeniesNobody lets one process use more than its share of a healthy store: its local
// store has no room for that, which is no denial of the client's.
func TestMirrorDeniesNobody(t *testing.T) {
	for _, text := range []string{"9 per 1h sliding_log ban 24h", "9 per 1h sliding_log count_denied"} {
		bubble(t, fallback.Options{Nodes: 3}, text, func(t *testing.T, s *shared, n node) {
			if got := n.pass(t, "a", 9); got != 9 {
				t.Fatal(got)
			}
			time.Sleep(61 * time.Minute)
			s.fail(errGone)
			if d, err := n.Take(t.Context(), "a", 1); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", text, d, err)
			}
		})
	}
}
