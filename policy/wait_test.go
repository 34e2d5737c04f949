package policy_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// TestWaitTooLongNamesTheQueues: a request that would wait too long is denied by the queues
// that make it wait, not by the limit with the least left.
func TestWaitTooLongNamesTheQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules":[
			{"name":"hour","key":[],"limits":["3/h"]},
			{"name":"trial","key":[],"shadow":true,"limits":["1/m burst 9 leaky_queue"]},
			{"name":"pace","key":[],"limits":[{"limit":"2/s burst 9 leaky_queue","name":"two"},"1/s burst 9 leaky_queue",{"limit":"9/s burst 9 leaky_queue","name":"nine"}]}]}`), policy.Options{})
		var r policy.Result
		for range 2 {
			if err := p.Decide(t.Context(), policy.Map{}, 1, &r); err != nil || !r.Decision.Allowed {
				t.Fatal(r.Decision, err)
			}
		}
		if _, err := p.Wait(t.Context(), policy.Map{}, 1, 500*time.Millisecond, &r); err != nil {
			t.Fatal(err)
		}
		d := r.Decision
		if d.Allowed || d.RetryAfter != stint.Wait(1500*time.Millisecond) || d.Denied != 0b110 || d.Tightest != 2 || d.Limit != 10 || r.Tightest != 3 {
			t.Errorf("%+v, by entry %d", d, r.Tightest)
		}
		for i, want := range []stint.Wait{0, 0, stint.Wait(500 * time.Millisecond), stint.Wait(1500 * time.Millisecond), 0} {
			if e := &r.Rules[i]; e.RetryAfter != want || e.Denied != (want > 0) {
				t.Errorf("%s: denied %t, retry after %v; want %v", e.Label, e.Denied, e.RetryAfter, want)
			}
		}
	})
}

// TestWaitReservesShortly: a place in a queue takes no room of reservations for much longer than its
// request waits, however long the queue may hold one.
func TestWaitReservesShortly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{MaxReservations: 100})
		p := made.Policy(t, store, made.Rules(t, `{"rules":[{"name":"q","key":["header.x"],"limits":["1/s burst 3600 leaky_queue"]}]}`), policy.Options{})
		var r policy.Result
		for i := range 600 { // each key at once, and again after a second in line
			attrs := policy.Map{"header.x": strconv.Itoa(i / 2)}
			if waited, err := p.Wait(t.Context(), attrs, 1, 0, &r); err != nil || !r.Decision.Allowed || waited != time.Duration(i%2)*time.Second {
				t.Fatalf("request %d: %v, %+v, %v", i, waited, r.Decision, err)
			}
		}
		if _, _, err := made.Limiter(t, store, "other", made.Limit(t, "9/h")).Reserve(t.Context(), "k", 1, time.Hour); err != nil {
			t.Error(err)
		}
	})
}

// TestWaitWithoutRoom: without room for reservations, requests start at the queue's pace and no more
// than it holds pass. A request that leaves
// makes room for those behind, and the last place passes unused.
func TestWaitWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{MaxReservations: 1})
		if _, _, err := made.Limiter(t, store, "other", made.Limit(t, "9/h")).Reserve(t.Context(), "k", 1, time.Hour); err != nil {
			t.Fatal(err)
		}
		p := made.Policy(t, store, made.Rules(t, `{"rules":[{"name":"q","key":[],"limits":["1/s burst 3 leaky_queue"]}]}`), policy.Options{})
		began, starts := time.Now(), make(chan time.Duration, 9)
		var all sync.WaitGroup
		for i := range 9 {
			all.Go(func() {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if i == 2 {
					time.AfterFunc(time.Second/2, leave)
				}
				var r policy.Result
				if _, err := p.Wait(ctx, policy.Map{}, 1, 0, &r); err == nil && r.Decision.Allowed {
					starts <- time.Since(began)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		close(starts)
		var got []time.Duration
		for at := range starts {
			got = append(got, at)
		}
		if want := []time.Duration{0, time.Second, 2 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("starts %v, want %v", got, want)
		}
	})
}

// TestWaitInWhatIsLeft: a deadline is not refused that is met in what is left of the place of one who gave up.
func TestWaitInWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"rules":[{"name":"q","key":[],"limits":["1/s burst 20 leaky_queue"]}]}`), policy.Options{})
		ctx, leave := context.WithCancel(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		wait := func(ctx context.Context, cost int64, at time.Duration) {
			all.Go(func() {
				var r policy.Result
				if _, err := p.Wait(ctx, policy.Map{}, cost, 0, &r); ctx.Err() == nil && (err != nil || !r.Decision.Allowed || time.Since(began) != at) {
					t.Errorf("cost %d: %v, %v after %v, want %v", cost, r.Decision.Allowed, err, time.Since(began), at)
				}
			})
			synctest.Wait()
		}
		wait(t.Context(), 1, 0)
		wait(ctx, 3, 0)
		wait(t.Context(), 1, time.Second)
		wait(t.Context(), 1, 2*time.Second)
		leave()
		synctest.Wait()
		until, end := context.WithTimeout(t.Context(), 3100*time.Millisecond)
		defer end()
		wait(until, 1, 3*time.Second)
		all.Wait()
	})
}
