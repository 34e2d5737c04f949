package proof_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// TestFormsStartAlike exhausts one key under a list of forms in turn, in memory
// and in Redis: each form starts with what is in use, up to its capacity, so
// both deny for as long.
func TestFormsStartAlike(t *testing.T) {
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	stores := map[string]stint.Store{
		"memory": memstore.New(memstore.Options{Now: clock}),
		"Redis":  openRedis(t, startRedis(t), clock),
	}
	defer stores["Redis"].Close()
	for _, forms := range []string{
		"10/h, 10/1m",
		"59/h, 10/1m",
		"59/h, 10/h, 10/1m",
		"59/h sliding_log, 10/1m",
		"59/h, 10/1m token_bucket_interval",
		"59/h, 10/1m sliding_log",
		"59/1m sliding_log, 10/1m sliding_log",
		"59/1m fixed_window, 10/1m fixed_window",
		"59/1m sliding_counter, 10/1m sliding_counter",
		"59/1m sliding_buckets, 10/1m sliding_buckets",
		"59/1m sliding_buckets parts 6, 10/1m sliding_buckets parts 4",
		"59/h, 10/1m sliding_counter",
		"59/h, 10/1m sliding_buckets",
		"59/h, 10/1m burst 4 leaky_queue",
		"20/h fixed_window, 10/h, 20/h fixed_window",
		"10/h, 10/h sliding_log, 10/h fixed_window, 10/h sliding_counter, 10/1m",
	} {
		t.Run(forms, func(t *testing.T) {
			waits := make(map[string][2]time.Duration)
			for name, store := range stores {
				d := exhaust(t, store, strings.Split(forms, ", "), forms)
				waits[name] = [2]time.Duration{time.Duration(d.RetryAfter), d.ResetAfter}
			}
			for i, in := range waits["memory"] {
				if off := waits["Redis"][i] - in; off < 0 || off >= time.Microsecond {
					t.Errorf("retry and reset after: %v in memory, %v in Redis", waits["memory"], waits["Redis"])
				}
			}
		})
	}
}

// exhaust takes under each form until it denies, and returns the last answer.
func exhaust(t *testing.T, store stint.Store, forms []string, key string) (d stint.Decision) {
	t.Helper()
	for _, text := range forms {
		l, err := stint.NewLimiter(store, "forms", parse(t, text).WithName("one"))
		if err != nil {
			t.Fatal(err)
		}
		for d.Allowed = true; d.Allowed; {
			if d, err = l.Take(context.Background(), key, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d
}
