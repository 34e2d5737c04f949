package policy_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

// A crowded store lets other requests take something between a peek and the decision after
// it.
type crowded struct {
	*memstore.Store
	others func()
}

func (c *crowded) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	d, err := c.Store.Decide(ctx, op, layers, cost)
	if op == meter.OpPeek && c.others != nil {
		others := c.others
		c.others = nil
		others()
	}
	return d, err
}

// TestBeginCrowded: if others take the room after the peek, the request is denied, and
// charged to no rule.
func TestBeginCrowded(t *testing.T) {
	rules := made.Rules(t, `{"rules": [
		{"name": "tokens", "key": [], "limits": ["1000/h"], "cost": {"usage": "openai", "reserve": 100}},
		{"name": "bytes", "key": [], "limits": ["1000/h"], "cost": {"response": "bytes", "reserve": 10}},
		{"name": "requests", "key": ["who"], "limits": ["1/h"]}]}`)
	store := &crowded{Store: memstore.New(memstore.Options{Now: func() int64 { return 1e18 }})}
	p := made.Policy(t, store, rules, policy.Options{})
	defer p.Close()
	var r policy.Result
	store.others = func() {
		limiter := made.Limiter(t, store.Store, "requests", stint.PerHour(1))
		if d, err := limiter.Take(context.Background(), "a", 1); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	pending, _, err := p.Begin(t.Context(), policy.Map{"who": "a"}, 1, false, 0, &r)
	if err != nil || pending != nil || r.Decision.Allowed || r.Decision.RetryAfter != stint.Wait(time.Hour) {
		t.Fatalf("%v, %+v, %v", pending, r.Decision, err)
	}
	if at := r.Tightest; at < 0 || r.Rules[at].Rule != "requests" {
		t.Errorf("tightest %d of %v", at, r.Rules)
	}
	if err := p.Peek(t.Context(), policy.Map{"who": "b"}, 1, &r); err != nil {
		t.Fatal(err)
	}
	for _, e := range r.Rules {
		if e.Remaining != e.Limit.Capacity() {
			t.Errorf("%s has %d left", e.Rule, e.Remaining)
		}
	}
}

// TestBeginNotes: a limit that counts denials, and one with a ban, do so even beside a rule
// that goes by the response.
func TestBeginNotes(t *testing.T) {
	for limit, want := range map[string]stint.Wait{
		"1/h":                                 stint.Wait(58 * time.Minute),
		"1 per hour sliding_log count_denied": stint.Wait(time.Hour),
		"1/h ban 5h":                          stint.Wait(5*time.Hour - time.Minute),
	} {
		rules := made.Rules(t, `{"rules": [
			{"name": "requests", "key": [], "limits": ["`+limit+`"]},
			{"name": "tokens", "key": [], "limits": ["1000 per hour sliding_log"], "cost": {"usage": "openai", "reserve": 100}}]}`)
		now := int64(1e18)
		p := made.Policy(t, memstore.New(memstore.Options{Now: func() int64 { return now }}), rules, policy.Options{})
		var r policy.Result
		for i, allowed := range []bool{true, false, false} {
			if i > 0 {
				now += int64(time.Minute)
			}
			if _, _, err := p.Begin(t.Context(), policy.Map{}, 1, false, 0, &r); err != nil || r.Decision.Allowed != allowed {
				t.Fatalf("%s, request %d: %+v, %v", limit, i, r.Decision, err)
			}
		}
		if r.Decision.RetryAfter != want {
			t.Errorf("%s: retry after %v, want %v", limit, r.Decision.RetryAfter, want)
		}
		if r.Rules[1].Remaining != 900 {
			t.Errorf("%s: %d tokens left, want 900", limit, r.Rules[1].Remaining)
		}
	}
}

// TestBeginQueue: the place of a request in a queue is reserved for as long as it may wait,
// and does not make a Pending.
func TestBeginQueue(t *testing.T) {
	for _, giveBack := range []bool{false, true} {
		p := newPolicy(t, `{"name": "pace", "key": [], "limits": ["1/s burst 9 leaky_queue"]}`)
		var r policy.Result
		pending, _, err := p.Begin(t.Context(), policy.Map{}, 1, giveBack, 0, &r)
		if err != nil || !r.Decision.Allowed || (pending != nil) != giveBack {
			t.Errorf("to give back %t: %+v, %v; something to settle: %t", giveBack, r.Decision, err, pending != nil)
		}
	}
}

// TestBeginGRPC: the trailer of a gRPC call says its status, by the codes of google.rpc.Code.
// Until then the call is open; if it breaks off, every rule counts it.
func TestBeginGRPC(t *testing.T) {
	type fields = map[string][]string
	call := func(more ...string) fields {
		return fields{"Content-Type": {"application/grpc+proto"}, "Grpc-Status": more}
	}
	status := func(code string) fields { return fields{"Grpc-Status": {code}} }
	for _, c := range []struct {
		name            string
		status          int
		header, trailer fields
		head, end       [2]int64 // units used by failures and by successes, after the header and at the end
	}{
		{"OK", 200, call(), status("0"), [2]int64{1, 1}, [2]int64{0, 1}},
		{"UNAUTHENTICATED", 200, call(), status("16"), [2]int64{1, 1}, [2]int64{1, 0}},
		{"CANCELLED, of clients", 200, call(), status("1"), [2]int64{1, 1}, [2]int64{1, 1}},
		{"a trailer alone", 200, call("16"), nil, [2]int64{1, 0}, [2]int64{1, 0}},
		{"no code", 200, call(), status("none"), [2]int64{1, 1}, [2]int64{0, 0}},
		{"broken off", 200, call(), nil, [2]int64{1, 1}, [2]int64{1, 1}},
		{"a status of HTTP", 401, call(), status("0"), [2]int64{1, 0}, [2]int64{1, 0}},
		{"gRPC-Web", 200, fields{"Content-Type": {"application/grpc-web"}}, status("16"), [2]int64{0, 1}, [2]int64{0, 1}},
		{"no call", 200, fields{"Content-Type": {"text/plain"}}, status("16"), [2]int64{0, 1}, [2]int64{0, 1}},
	} {
		p := newPolicy(t, `{"name": "failures", "key": [], "limits": ["9 per day fixed_window"], "count": {"status": 401}},
			{"name": "successes", "key": [], "limits": ["9 per day fixed_window"], "count": {"status": "2xx"}}`)
		var r policy.Result
		d, _, err := p.Begin(t.Context(), policy.Map{}, 1, false, -1, &r)
		if err != nil {
			t.Fatal(err)
		}
		used := func() (all [2]int64) {
			if err := p.Peek(t.Context(), policy.Map{}, 1, &r); err != nil {
				t.Fatal(err)
			}
			return [2]int64{9 - r.Rules[0].Remaining, 9 - r.Rules[1].Remaining}
		}
		err = d.Header(t.Context(), c.status, c.header)
		if got := used(); err != nil || got != c.head {
			t.Errorf("%s: %v used behind the header, want %v; %v", c.name, got, c.head, err)
		}
		d.Trailer(c.trailer)
		err = d.End(t.Context(), c.trailer != nil)
		if got := used(); err != nil || got != c.end {
			t.Errorf("%s: %v used at the end, want %v; %v", c.name, got, c.end, err)
		}
	}
}
