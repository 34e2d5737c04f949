package memstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/memstore"
)

// A rateStep is one line of a public case of golang.org/x/time/rate. Times are in
// tenths of a second from the start.
type rateStep struct {
	at    int
	op    string // allow, wait, soon (a wait with a deadline in a tenth), cancel (the wait of a number), block, or a limit to set
	n     int64  // units, or which wait
	rate  int    // when rate lets it act; −1 where it does not
	ours  int    // when a Single does, if not at the same time
	where bool   // ours is set
}

// operation is a step that is the same in both, differs one in which ours is another.
func operation(at int, op string, n int64, when int) rateStep {
	return rateStep{at: at, op: op, n: n, rate: when}
}

func differs(at int, op string, n int64, rate, ours int) rateStep {
	return rateStep{at, op, n, rate, ours, true}
}

const never = -1

// rateCases are those of Allow, Reserve and Wait. A Reserve of rate is a Wait here:
// what it would sleep, this does.
var rateCases = []struct {
	name, limit string
	reason      string // where a Single does otherwise on purpose
	steps       []rateStep
}{
	{"burst 1", "10/s burst 1", "", []rateStep{
		operation(0, "allow", 1, 0), operation(0, "allow", 1, never), operation(0, "allow", 1, never),
		operation(1, "allow", 1, 1), operation(1, "allow", 1, never), operation(1, "allow", 1, never),
		operation(2, "allow", 2, never), operation(2, "allow", 1, 2), operation(2, "allow", 1, never),
	}},
	{"burst 3", "10/s burst 3", "", []rateStep{
		operation(0, "allow", 2, 0), operation(0, "allow", 2, never), operation(0, "allow", 1, 0), operation(0, "allow", 1, never),
		operation(1, "allow", 4, never), operation(2, "allow", 1, 2), operation(3, "allow", 1, 3), operation(4, "allow", 1, 4), operation(4, "allow", 1, 4),
		operation(4, "allow", 1, never), operation(4, "allow", 1, never), operation(9, "allow", 3, 9), operation(9, "allow", 0, 9),
	}},
	{"simple reserve", "10/s burst 2", "", []rateStep{
		operation(0, "wait", 2, 0), operation(0, "wait", 2, 2), operation(3, "wait", 2, 4),
	}},
	{"mix", "10/s burst 2", "Allow does not stand in line: it gets what passes in between, and who waits waits for longer", []rateStep{
		operation(0, "wait", 3, never), operation(0, "wait", 2, 0), operation(1, "allow", 2, never),
		differs(1, "wait", 2, 2, 3), differs(1, "allow", 1, never, 1), differs(3, "allow", 1, 3, never),
	}},
	{"cancel what cannot be", "10/s burst 2", "", []rateStep{
		operation(0, "wait", 2, 0), operation(0, "wait", 3, never), operation(0, "cancel", 1, never), operation(0, "wait", 2, 2),
	}},
	{"cancel last", "10/s burst 2", "", []rateStep{
		operation(0, "wait", 2, 0), operation(0, "wait", 2, never), operation(1, "cancel", 1, never), operation(1, "wait", 2, 2),
	}},
	{"cancel too late", "10/s burst 2", "", []rateStep{
		operation(0, "wait", 2, 0), operation(0, "wait", 2, 2), operation(3, "cancel", 1, never), operation(3, "wait", 2, 4),
	}},
	{"cancel, nothing comes back", "10/s burst 2", "those behind one who gives up move up", []rateStep{
		operation(0, "wait", 2, 0), operation(0, "wait", 1, never), differs(0, "wait", 1, 2, 1), operation(0, "cancel", 1, never), differs(0, "wait", 1, 3, 2),
	}},
	{"cancel, one comes back", "10/s burst 2", "what waits until 2 has passed at 2, and cannot be cancelled", []rateStep{
		operation(0, "wait", 2, 0), differs(0, "wait", 2, never, 2), operation(0, "wait", 1, 3), operation(2, "cancel", 1, never), differs(2, "wait", 2, 4, 5),
	}},
	{"cancel before it passes", "10/s burst 2", "those behind one who gives up move up", []rateStep{
		operation(0, "wait", 2, 0), operation(0, "wait", 2, never), differs(0, "wait", 1, 3, 1), operation(1, "cancel", 1, never), differs(2, "wait", 2, 4, 3),
	}},
	{"cancel several", "10/s burst 4", "those behind one who gives up move up", []rateStep{
		operation(0, "wait", 4, 0), operation(0, "wait", 3, never), differs(0, "wait", 1, 4, 1), operation(0, "wait", 1, never),
		operation(1, "cancel", 3, never), operation(1, "cancel", 1, never), differs(1, "wait", 3, 5, 4),
	}},
	{"set the limit", "5/s burst 2", "a turn is not booked ahead: what waits goes by the new limit too", []rateStep{
		operation(0, "wait", 2, 0), differs(0, "wait", 2, 4, 3), operation(2, "10/s burst 2", 0, never), operation(2, "wait", 1, 4),
	}},
	{"set the burst", "5/s burst 2", "a turn is not booked ahead, and a larger burst has room at once; rate is asked at 0 again, after 3", []rateStep{
		operation(0, "wait", 2, 0), differs(0, "wait", 2, 4, 3), operation(3, "5/s burst 4", 0, never), differs(3, "wait", 4, 9, 8),
	}},
	{"set the limit, cancelled", "5/s burst 2", "", []rateStep{
		operation(0, "wait", 2, 0), operation(0, "wait", 2, never), operation(2, "10/s burst 2", 0, never), operation(2, "cancel", 1, never), operation(2, "wait", 2, 3),
	}},
	{"wait", "10/s burst 3", "", []rateStep{
		operation(0, "wait", 4, never), operation(0, "wait", 2, 0), operation(0, "wait", 3, 2),
	}},
	{"a rate of 0, then another", "10/s burst 1", "there is no rate of 0: SetBlocked lets nothing pass, not even a first burst", []rateStep{
		operation(0, "block", 0, never), differs(0, "allow", 1, 0, never), operation(0, "allow", 1, never), operation(0, "10/s burst 1", 0, never), differs(0, "wait", 1, 1, 0),
	}},
	{"wait, cancelled", "10/s burst 3", "", []rateStep{
		operation(0, "wait", 2, 0), operation(0, "wait", 3, never), operation(1, "cancel", 1, never), operation(1, "wait", 2, 1),
	}},
	{"at most a tenth ahead", "10/s burst 2", "", []rateStep{
		operation(0, "soon", 2, 0), operation(0, "soon", 1, 1), operation(0, "soon", 1, never),
	}},
}

// TestRateCases runs what golang.org/x/time/rate holds its Limiter to. A clock that
// jumps back is not among it: rate gives out what it gave before, a Single nothing.
func TestRateCases(t *testing.T) {
	for _, test := range rateCases {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSingle(t, test.limit, memstore.SingleOptions{})
				began, got := time.Now(), make([]int, len(test.steps))
				cancels := map[int64]context.CancelFunc{}
				waits, differ := int64(0), false
				now := func() int { return int(time.Since(began) / (100 * time.Millisecond)) }
				for i, step := range test.steps {
					time.Sleep(time.Until(began.Add(time.Duration(step.at) * 100 * time.Millisecond)))
					synctest.Wait()
					got[i] = never
					switch step.op {
					case "allow":
						if s.AllowN(step.n) {
							got[i] = now()
						}
					case "block":
						s.SetBlocked()
					case "cancel":
						cancels[step.n]()
					case "wait", "soon":
						ctx, cancel := context.WithCancel(t.Context())
						if step.op == "soon" {
							ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
						}
						cancels[waits] = cancel
						waits++
						go func() {
							if s.Wait(ctx, step.n) == nil {
								got[i] = now()
							}
						}()
					default:
						if err := s.SetLimit(limit(t, step.op)); err != nil {
							t.Error(err)
						}
					}
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for i, step := range test.steps {
					want := step.rate
					if step.where {
						want, differ = step.ours, true
					}
					if got[i] != want {
						t.Errorf("step %d, %s %d at %d: at %d, want %d (rate: %d)", i, step.op, step.n, step.at, got[i], want, step.rate)
					}
				}
				if differ != (test.reason != "") {
					t.Error("a difference and a reason go together")
				}
				for _, cancel := range cancels {
					cancel()
				}
			})
		})
	}
}

// TestRateErrors has a Wait fail at once whose context has ended, or ends before it
// could pass.
func TestRateErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSingle(t, "10/s burst 3", memstore.SingleOptions{})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		for _, c := range []struct {
			ctx    context.Context
			n      int64
			passes bool
		}{{ended, 1, false}, {soon, 4, false}, {soon, 2, true}, {soon, 3, false}, {soon, 2, true}} {
			if err := s.Wait(c.ctx, c.n); (err == nil) != c.passes {
				t.Errorf("wait for %d: %v", c.n, err)
			}
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("it took %v: one waits for a token, no other for anything", took)
		}
		s.SetUnlimited() // rate.Inf
		if err := s.Wait(t.Context(), 1<<40); err != nil {
			t.Error(err)
		}
	})
}

// TestRateCounts has what golang.org/x/time/rate counts: requests side by side, a
// long run, and rates that a float64 cannot hold.
func TestRateCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed atomic.Int64
		var all sync.WaitGroup
		slow := newSingle(t, "1/s burst 5", memstore.SingleOptions{})
		for range 15 {
			all.Go(func() {
				if slow.Allow() {
					passed.Add(1)
				}
			})
		}
		if all.Wait(); passed.Load() != 5 { // TestSimultaneousRequests
			t.Errorf("%d passed at once, want 5", passed.Load())
		}
		long, n := newSingle(t, "100/s burst 100", memstore.SingleOptions{}), 0
		for range 2500 { // TestLongRunningQPS: 5 s
			if long.Allow() {
				n++
			}
			time.Sleep(2 * time.Millisecond)
		}
		if n != 599 && n != 600 {
			t.Errorf("%d passed in 5 s, want 100 and 100 a second", n)
		}
		for _, text := range []string{"1/1300ms burst 1", "10/13s burst 1", "1/1000000h burst 1"} { // TestLimiter_noTruncationErrors, TestTinyLimit; the longest period has 146 years
			s := newSingle(t, text, memstore.SingleOptions{})
			if first, second := s.Allow(), s.Allow(); !first || second {
				t.Errorf("%s: %v, %v", text, first, second)
			}
		}
	})
}
