package proof_test

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// A stream is one of a customer's: it asks until it passes, and then streams.
type stream struct {
	at       int64
	order    int
	customer string
	pending  *policy.Pending // nil while it asks
	event    int
	cost     int64
}

// streams are in the order in which they go on.
type streams []*stream

func (s streams) Len() int { return len(s) }
func (s streams) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].order < s[j].order
}
func (s streams) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *streams) Push(x any)   { *s = append(*s, x.(*stream)) }
func (s *streams) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// TestGatewayRules has customers with fifty streams each at rules that settle what the
// responses say: their true costs are log-normal around what is reserved. What is charged
// in the end is never above the limit, and nearly all of the budget is used.
func TestGatewayRules(t *testing.T) {
	const reserve, perMinute, minutes = 1000, 100_000, 5
	customers := 100
	if testing.Short() {
		customers = 3
	}
	limit := parse(t, "100_000/m debt 10_000_000")
	rules := made.Rules(t, fmt.Sprintf(`{"rules": [
		{"name": "tokens", "key": ["customer"], "limits": [%q], "cost": {"usage": "openai", "reserve": %d}},
		{"name": "requests", "key": ["customer"], "limits": ["100_000/m"]}]}`, limit, reserve))
	now := int64(1e18)
	p := made.Policy(t, memstore.New(memstore.Options{Now: func() int64 { return now }}), rules, policy.Options{})
	random := rand.New(rand.NewPCG(3, 5))
	var queue streams
	for c := range customers {
		for range 50 {
			queue = append(queue, &stream{at: now + random.Int64N(int64(time.Second)), order: len(queue), customer: fmt.Sprint("c", c)})
		}
	}
	heap.Init(&queue)
	ends := now + int64(minutes*time.Minute)
	var events []oracle.Event
	var settlements []oracle.Settlement
	used := make(map[string]int64)
	var r policy.Result
	for {
		s := queue[0]
		if now = s.at; now >= ends {
			break
		}
		switch s.pending {
		case nil:
			pending, _, err := p.Begin(context.Background(), policy.Map{"customer": s.customer}, 1, false, -1, &r)
			if err != nil {
				t.Fatal(err)
			}
			s.pending = pending
			events = append(events, oracle.Event{T: now, Key: s.customer, Cost: reserve, Allowed: r.Decision.Allowed})
			if s.pending == nil {
				s.at += max(int64(r.Decision.RetryAfter), 1)
				break
			}
			s.event, s.cost = len(events)-1, int64(math.Ceil(reserve*math.Exp(random.NormFloat64()-0.5)))
			s.at += int64(time.Second) + random.Int64N(int64(20*time.Second))
		default:
			if err := s.pending.Header(context.Background(), 200, nil); err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprintf(s.pending, "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", s.cost)
			if err := s.pending.End(context.Background(), true); err != nil {
				t.Fatal(err)
			}
			settlements = append(settlements, oracle.Settlement{T: now, Event: s.event, Cost: s.cost})
			used[s.customer] += s.cost
			s.pending = nil
			s.at += int64(time.Millisecond)
		}
		heap.Fix(&queue, 0)
	}
	judgeByKey(t, limit, oracle.Settled(events, settlements))
	least, all := int64(math.MaxInt64), int64(0)
	for _, units := range used {
		least, all = min(least, units), all+units
	}
	budget := int64(perMinute * (minutes + 1)) // with the burst
	t.Logf("%d customers: %d requests, %.2f %% of the budget used, %.2f %% at least", customers, len(settlements),
		100*float64(all)/float64(budget*int64(customers)), 100*float64(least)/float64(budget))
	if all*100 < budget*int64(customers)*95 {
		t.Errorf("used %d of %d", all, budget*int64(customers))
	}
}

// judgeByKey holds what was finally charged to the limit, each key by itself.
func judgeByKey(t *testing.T, limit stint.Limit, final []oracle.Event) {
	t.Helper()
	keys := make(map[string][]oracle.Event)
	for _, e := range final {
		keys[e.Key] = append(keys[e.Key], e)
	}
	for key, events := range keys {
		v := append(oracle.Check(spec(limit), events, 0), oracle.Admitted(spec(limit), events)...)
		if len(v) > 0 {
			t.Errorf("%s: %d violations in %d events, first: %v", key, len(v), len(events), v[0])
		}
	}
}

// TestUsageRedis settles what responses say in a real Redis, and a cluster of three: each
// rule by itself, whatever node its keys are on, and in every mode.
func TestUsageRedis(t *testing.T) {
	for name, url := range map[string]string{"server": "unix://" + startRedis(t), "cluster": redistest.StartCluster(t, 3, 1).URL()} {
		for _, mode := range []string{"strict", "lease", "async", "share"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				usageIn(t, url, mode)
			})
		}
	}
}

func usageIn(t *testing.T, url, mode string) {
	rules := made.Rules(t, `{"rules": [
		{"name": "requests", "key": ["b"], "limits": ["100 per 1000h sliding_log"], "mode": "`+mode+`"},
		{"name": "tokens", "key": ["a"], "limits": ["1000 per 87600h fixed_window"], "mode": "`+mode+`", "cost": {"usage": "openai", "reserve": 100}},
		{"name": "failures", "key": [], "limits": ["10/1000h"], "count": {"status": 500}},
		{"name": "bytes", "key": ["a", "b"], "limits": ["1000 per 1000h sliding_log"], "cost": {"response": "bytes", "reserve": 300}, "shadow": true}]}`)
	store, err := redisstore.New(redisstore.Options{URL: url, Prefix: t.Name(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := made.Policy(t, store, rules, policy.Options{})
	defer p.Close()
	attrs := policy.Map{"a": "1", "b": "2"}
	var r policy.Result
	for _, one := range []struct {
		status int
		body   string
	}{{200, `{"usage":{"total_tokens":7}}`}, {500, `{"usage":{"total_tokens":250}}`}, {500, ``}} {
		pending, _, err := p.Begin(t.Context(), attrs, 1, false, 0, &r)
		if err != nil || pending == nil {
			t.Fatal(pending, err)
		}
		if err := pending.Header(t.Context(), one.status, nil); err != nil {
			t.Fatal(err)
		}
		_, _ = pending.Write([]byte(one.body))
		if err := pending.End(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int64{"requests": 97, "tokens": 1000 - 7 - 250 - 100, "failures": 8, "bytes": 1000 - 28 - 30}
	if err := p.Peek(t.Context(), attrs, 1, &r); err != nil {
		t.Fatal(err)
	}
	for _, e := range r.Rules {
		if e.Remaining != want[e.Rule] {
			t.Errorf("%s has %d left, want %d", e.Rule, e.Remaining, want[e.Rule])
		}
	}
}
