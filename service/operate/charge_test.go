package operate_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/operate"
)

// TestChargedAgain uses a limit of each algorithm at a moment, and asks some times later
// how much of it an undo of a reset would charge: as much as the key that was not reset
// has in use.
func TestChargedAgain(t *testing.T) {
	for _, limit := range []string{
		"10 per 10s", "10 per 10s burst 20", "10 per 10s fixed_window", "10 per 10s fixed_window from first", "10 per 10s sliding_log", "10 per 10s sliding_counter",
		"10 per 10s sliding_buckets parts 5", "20 per 10s token_bucket_interval", "3 per 2s burst 10 token_bucket_interval", "1/s burst 10 leaky_queue", "10 per day in UTC",
	} {
		for _, used := range []int64{1, 7, 10, 15} { // 15 is more than most let pass
			t.Run(fmt.Sprint(limit, " ", used), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { chargedAgain(t, limit, used) })
			})
		}
	}
}

func chargedAgain(t *testing.T, limit string, used int64) {
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, string(fmt.Appendf(nil, `{"rules": [{"name": "api", "key": ["ip"], "limits": [%q]}]}`, limit))), policy.Options{})
	time.Sleep(3100 * time.Millisecond) // not at the edge of a window
	id, err := p.Reserve(t.Context(), policy.Map{"ip": "192.0.2.1"}, 1, time.Minute, new(policy.Result))
	if err == nil {
		_, err = p.Settle(t.Context(), id, used)
	}
	if err != nil {
		t.Fatal(err)
	}
	inUse := func() int64 {
		limits, err := p.UsedOf(t.Context(), "api", "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return limits[0].Used
	}
	limits, err := p.UsedOf(t.Context(), "api", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	counts, began := operate.Given(limits), time.Now()
	for time.Since(began) < 25*time.Second {
		time.Sleep(700 * time.Millisecond)
		got, want := int64(0), inUse()
		if all := counts(time.Since(began)); len(all) > 0 {
			got = all[0]
		}
		if got < want-1 || got > want+1 {
			t.Errorf("%v later an undo charges %d, and %d would count", time.Since(began), got, want)
		}
	}
}
