package memstore_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// A limit that is tightened, or becomes another kind, hands an exhausted key
// nothing, and keeps it out for no longer than the new limit does.
func TestChangeMintsNothing(t *testing.T) {
	for _, c := range []struct {
		from, to string
		blocked  time.Duration // a unit passes after this, and no sooner
	}{
		{"10/s burst 100", "1/s burst 100", time.Second},
		{"1000/1h token_bucket_interval", "1000/24h token_bucket_interval", 0},
		{"10/24h", "10/1m", 6 * time.Second},
		{"10/24h fixed_window", "10/1m fixed_window", time.Minute},
		{"10 per day in UTC", "10/1m sliding_log", time.Minute},
		{"10/1m", "10/1m sliding_log", time.Minute},
		{"10/1h sliding_log", "10/1h", 6 * time.Minute},
		{"10/1m sliding_buckets", "10/1m token_bucket_interval", 0},
	} {
		t.Run(c.from+" to "+c.to, func(t *testing.T) {
			clock := new(clock)
			clock.advance(24 * 1000 * time.Hour) // to the beginning of a day
			s := memstore.New(memstore.Options{Now: clock.now})
			bind := func(text string) *stint.Limiter {
				l, err := stint.NewLimiter(s, "api", limit(t, text).WithName("calls"))
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			l := bind(c.from)
			if d, _ := l.Take(ctx, "a", l.Limits()[0].Capacity()); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			l = bind(c.to)
			d, _ := l.Take(ctx, "a", 1)
			if d.Allowed || c.blocked > 0 && time.Duration(d.RetryAfter) != c.blocked {
				t.Errorf("%+v, want it blocked for %v", d, c.blocked)
			}
		})
	}
}
