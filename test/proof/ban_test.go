package proof_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// TestAccountBan has the rule that stands in place of fail2ban: successes at once and open
// streams ban nobody, and failures do, in memory and in Redis.
func TestAccountBan(t *testing.T) {
	store, err := redisstore.New(redisstore.Options{URL: "unix://" + startRedis(t), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for name, s := range map[string]stint.Store{"memory": memstore.New(memstore.Options{}), "redis": store} {
		t.Run(name, func(t *testing.T) {
			rules, err := policy.Parse([]byte(`{"rules": [{"name": "login", "key": ["ip"], "limits": ["5 per 10 minutes sliding_log ban 1h"], "count": {"status": [401, 403]}}]}`))
			if err != nil {
				t.Fatal(err)
			}
			p, err := policy.New(s, rules, policy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			var r policy.Result
			begin := func() *policy.Pending {
				t.Helper()
				pending, _, err := p.Begin(t.Context(), policy.Map{"ip": "192.0.2.7"}, 1, false, -1, &r)
				if err != nil {
					t.Fatal(err)
				}
				return pending
			}
			five := func(status int) {
				t.Helper()
				var all []*policy.Pending
				for range 5 {
					all = append(all, begin())
				}
				if begin() != nil || r.Decision.Banned || r.Decision.RetryAfter > stint.Wait(time.Second) {
					t.Fatalf("the sixth at once: %+v", r.Decision)
				}
				for _, one := range all {
					if one == nil {
						t.Fatalf("one of five at once was denied: %+v", r.Decision)
					}
					if err := one.Header(t.Context(), status, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			five(200) // and they stream on
			five(200)
			five(401)
			if begin() != nil || !r.Decision.Banned || r.Decision.RetryAfter < stint.Wait(59*time.Minute) {
				t.Errorf("after five failures: %+v", r.Decision)
			}
		})
	}
}
