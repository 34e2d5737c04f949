package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestKeyDenied has a user that may use the keys of one limit and not those of another,
// and many requests for both share calls: those that may be decided are.
func TestKeyDenied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--user", "app", "on", ">right", "resetkeys", "~acl:*:fine/*", "~acl::*", "~acl:{*}::*", "&*", "+@all")
	store := open(t, "redis://app:right@"+server.Addr, redisstore.Options{Prefix: "acl"})
	for _, text := range []string{"1000/1000h", "1000/1000h sliding_log"} { // the short way and the long
		fine := made.Bound(t, store, "fine", parse(t, text))
		denied := made.Bound(t, store, "denied", parse(t, text))
		eventually(t, "the store does not decide", func() bool { _, err := fine.Decide(ctx, meter.OpTake, "first", 1); return err == nil })
		var callers sync.WaitGroup
		for i := range 64 {
			callers.Go(func() {
				for n := range int64(20) {
					if i%8 == 0 {
						if _, err := denied.Decide(ctx, meter.OpTake, text, 1); !errors.Is(err, redisstore.ErrConfiguration) {
							t.Errorf("%s: a key that is denied: %v", text, err)
						}
						continue
					}
					d, err := fine.Decide(ctx, meter.OpTake, fmt.Sprint(text, i), 1)
					if err != nil || d.Limit-d.Remaining != n+1 {
						t.Errorf("%s: %d units, want %d: %v", text, d.Limit-d.Remaining, n+1, err)
						return
					}
				}
			})
		}
		callers.Wait()
	}
	if st := store.Stats(); st.Open != 0 || st.Batches == 0 {
		t.Errorf("%+v: no breaker should be open, and calls shared", st)
	}
}
