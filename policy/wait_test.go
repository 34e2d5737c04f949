package policy_test

import (
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
