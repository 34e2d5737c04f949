package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// TestTurns: who waits is charged as of its turn, whether limits are bound without a mode or, as those of
// rules are, in mode strict. So what a late timer has missed passes at once.
func TestTurns(t *testing.T) {
	store := open(t, "redis://"+redistest.Start(t).Addr, redisstore.Options{})
	for name, b := range map[string]stint.Bound{"none": bind(t, store, "100/s burst 1"), "strict": underOneName(t, store.Mode(redisstore.Strict), "strict", "100/s burst 1")} {
		for i := range 6 { // calls of waiters keep the state for a second longer than it is in use
			d, _, err := store.TakeTurn(ctx, []stint.Layer{{Bound: b, Key: "a"}}, 1, 0, time.Duration(min(i, 1))*250*time.Millisecond)
			if err != nil || !d.Allowed {
				t.Errorf("mode %s: turn %d: %+v, %v", name, i, d, err)
			}
			if i == 0 {
				time.Sleep(300 * time.Millisecond)
			}
		}
	}
}
