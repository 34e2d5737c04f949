package redisstore_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestSharesRecover binds 20,000 limits of mode Share that nobody holds, and finds
// few of them afterwards. One that is held, and one that is bound anew, count on.
func TestSharesRecover(t *testing.T) {
	store := open(t, "redis://127.0.0.1:1", redisstore.Options{}) // this mode asks no server
	shares := store.Mode(redisstore.Share)
	take := func(name string, text string, want int64) {
		t.Helper()
		b := made.Bound(t, shares, name, parse(t, text))
		if d, err := b.Decide(ctx, meter.OpTake, "a", 1); err != nil || !d.Allowed || d.Remaining != want {
			t.Errorf("%s: %+v, %v: want %d remaining", name, d, err, want)
		}
	}
	held := made.Bound(t, shares, "held", parse(t, "10/h"))
	take("held", "10/h", 9)
	take("dropped", "10/h", 9)
	for i := range 20_000 {
		if _, err := shares.Bind(fmt.Sprint("name ", i), parse(t, "10/h")); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			runtime.GC()
		}
	}
	if n := store.KnownShares(); n > 5000 {
		t.Errorf("%d limits are known that nobody holds", n)
	}
	take("dropped", "10/h", 8)
	take("held", "20/h", 18)
	runtime.GC()
	if got := held.Limits()[0]; got != parse(t, "20/h") {
		t.Errorf("what is held stands at %v, want what was bound last", got)
	}
}
