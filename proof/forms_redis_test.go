package proof_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// TestFormsStartAlike exhausts one key under a list of forms in turn, in memory
// and in Redis: each form starts with what is in use, up to its capacity, so
// both deny for as long.
func TestFormsStartAlike(t *testing.T) {
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	stores := map[string]stint.Store{
		"memory": memstore.New(memstore.Options{Now: clock}),
		"Redis":  openRedis(t, "unix://"+startRedis(t), clock),
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

// TestPlansShared moves a customer of a rule from its own limits to an override,
// a tier, limits of the customer's own and back, over Redis as in memory: each
// starts with what the others count, and going back finds the truth.
func TestPlansShared(t *testing.T) {
	rules, err := policy.Parse([]byte(`{"rules": [{
		"name": "api", "key": ["header.k"], "limits": ["10/h"],
		"tiers": {"by": "jwt.plan", "plans": {"pro": ["50/h", "100/d"], "all": {"unlimited": true}}},
		"overrides": [{"name": "vip", "when": {"header.vip": true}, "limits": ["20/h"]}]
	}]}`))
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	stores := map[string]stint.Store{
		"memory":        memstore.New(memstore.Options{Now: clock}),
		"Redis":         openRedis(t, "unix://"+startRedis(t), clock),
		"Redis, strict": openRedis(t, "unix://"+startRedis(t), clock).Mode(redisstore.Strict),
	}
	own := policy.Map{"header.k": "a"}
	with := func(name, value string) policy.Map { return policy.Map{"header.k": "a", name: value} }
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			defer store.Close()
			p, err := policy.New(store, rules, policy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			set := func(text string) {
				o := policy.Override{}
				if text != "" {
					o.Limits = []stint.Limit{parse(t, text)}
				}
				if err := p.SetOverride("api", "a", o); err != nil {
					t.Fatal(err)
				}
			}
			for _, step := range []struct {
				what, customers string
				attrs           policy.Map
				want            int
			}{
				{"the rule's own", "", own, 10},
				{"unlimited", "", with("jwt.plan", "all"), 60},
				{"the customer's first override, 10 used of 15", "15/h", own, 5},
				{"it ends", "", own, 0},
				{"an override, 15 used of 20", "", with("header.vip", "yes"), 5},
				{"a tier, 20 used of 50", "", with("jwt.plan", "pro"), 30},
				{"the override again", "", with("header.vip", "yes"), 0},
				{"the tier again", "", with("jwt.plan", "pro"), 0},
				{"the rule's own again", "", own, 0},
				{"the customer's again", "15/h", own, 0},
				{"the customer's, of another kind and period", "15/1m sliding_log", own, 0},
				{"and back", "15/h", own, 0},
			} {
				set(step.customers)
				if n := passesUntil(t, p, step.attrs, 60); n != step.want {
					t.Errorf("%s: %d passed, want %d", step.what, n, step.want)
				}
			}
			if err := p.RefundKey(t.Context(), "api", "a", 2); err != nil {
				t.Fatal(err)
			}
			set("")
			if n := passesUntil(t, p, own, 60); n > 2 {
				t.Errorf("%d passed after a refund of 2", n)
			}
			if err := p.ResetKey(t.Context(), "api", "a"); err != nil {
				t.Fatal(err)
			}
			if n := passesUntil(t, p, with("jwt.plan", "pro"), 60); n != 50 {
				t.Errorf("%d passed after a reset", n)
			}
		})
	}
}

// passesUntil asks until the first denial, at most so often.
func passesUntil(t *testing.T, p *policy.Policy, attrs policy.Map, most int) (n int) {
	t.Helper()
	var r policy.Result
	for n < most {
		if err := p.Decide(t.Context(), attrs, 1, &r); err != nil {
			t.Fatal(err)
		}
		if !r.Decision.Allowed {
			break
		}
		n++
	}
	return n
}

// TestManyFormsEnvelopeRedis is TestManyFormsEnvelope over Redis.
func TestManyFormsEnvelopeRedis(t *testing.T) {
	var now int64
	store := openRedis(t, "unix://"+startRedis(t), func() int64 { return now })
	defer store.Close()
	for check := range scaled(100, 300, 10_000) {
		rng := rand.New(rand.NewPCG(uint64(check), 13))
		wander(t, rng, &now, check, func(key string, limits []stint.Limit) stint.Bound {
			b, err := store.Bind(key, limits...) // of its own: the clock goes back
			if err != nil {
				t.Fatal(err)
			}
			return b
		})
	}
}
