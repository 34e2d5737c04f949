package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

func parse(t testing.TB, rules ...string) *policy.Rules {
	t.Helper()
	return made.Rules(t, `{"rules": [`+strings.Join(rules, ",\n")+`]}`)
}

// newPolicy returns a policy on a store whose clock stands still.
func newPolicy(t testing.TB, rules ...string) *policy.Policy {
	t.Helper()
	return made.Policy(t, memstore.New(memstore.Options{Now: func() int64 { return 0 }}), parse(t, rules...), policy.Options{})
}

func decide(t testing.TB, p *policy.Policy, attrs policy.Attributes) *policy.Result {
	t.Helper()
	return decideN(t, p, attrs, 1)
}

func decideN(t testing.TB, p *policy.Policy, attrs policy.Attributes, cost int64) *policy.Result {
	t.Helper()
	var r policy.Result
	if err := p.Decide(t.Context(), attrs, cost, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func peek(t testing.TB, p *policy.Policy, attrs policy.Attributes) *policy.Result {
	t.Helper()
	var r policy.Result
	if err := p.Peek(t.Context(), attrs, 1, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// passes counts how many requests of cost 1 pass in a row.
func passes(t testing.TB, p *policy.Policy, attrs policy.Attributes) (n int) {
	t.Helper()
	for decide(t, p, attrs).Decision.Allowed {
		if n++; n > 1000 {
			t.Fatal("no end")
		}
	}
	return n
}

// TestCosts: rules under which a request has different costs still charge all or nothing.
func TestCosts(t *testing.T) {
	p := newPolicy(t,
		`{"name": "requests", "key": ["ip"], "limits": ["10/m"]}`,
		`{"name": "tokens", "key": ["ip"], "cost": {"attribute": "tokens", "default": 7, "min": 2, "max": 50}, "limits": ["100/m"]}`,
		`{"name": "hammer", "key": ["ip"], "limits": ["1000/m sliding_log count_denied"]}`)
	left := func() [3]int64 {
		var r policy.Result
		if err := p.Peek(t.Context(), policy.Map{"ip": "a.b"}, 0, &r); err != nil {
			t.Fatal(err)
		}
		return [3]int64{r.Rules[0].Remaining, r.Rules[1].Remaining, r.Rules[2].Remaining}
	}
	ip := "a.b" // no address: missing, and shared
	for _, c := range []struct {
		tokens string
		pass   bool
		left   [3]int64
	}{
		{"40", true, [3]int64{9, 60, 999}},
		{"", true, [3]int64{8, 53, 998}},
		{"1", true, [3]int64{7, 51, 997}},
		{"99999999999999999999", true, [3]int64{6, 1, 996}},
		{"2", false, [3]int64{6, 1, 995}}, // the limit that counts denials is charged
	} {
		r := decide(t, p, policy.Map{"ip": ip, "tokens": c.tokens})
		if got := left(); r.Decision.Allowed != c.pass || got != c.left {
			t.Errorf("%s: %+v, left %v, want %v", c.tokens, r.Decision, got, c.left)
		}
		if !c.pass && (!r.Rules[1].Denied || r.Rules[0].Denied || r.Tightest != 1) {
			t.Errorf("%+v", r)
		}
	}
	for _, bad := range []string{"-1", "+1", "1.5", "x", " 1", "0x1"} {
		var r policy.Result
		err := p.Decide(t.Context(), policy.Map{"ip": ip, "tokens": bad}, 1, &r)
		var re *policy.RequestError
		if !errors.As(err, &re) || re.Attribute != "tokens" || len(bad) > 1 && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var r policy.Result
	if err := p.Decide(t.Context(), policy.Map{"ip": ip}, -1, &r); !errors.Is(err, stint.ErrCost) {
		t.Error(err)
	}
	if got := left(); got != [3]int64{6, 1, 995} {
		t.Errorf("errors have charged: %v", got)
	}
	if d := decideN(t, p, policy.Map{"ip": ip, "tokens": "50"}, 1<<62).Decision; d.Allowed || d.RetryAfter != stint.Never {
		t.Errorf("a cost that wraps: %+v", d)
	}
	for _, more := range []string{"", `, {"name": "b", "key": ["ip"], "limits": ["10/s"]}`, `, {"name": "b", "shadow": true, "key": ["ip"], "cost": 4, "limits": ["9223372036854775807/s"]}`} {
		p := newPolicy(t, `{"name": "most", "key": ["ip"], "cost": 4, "limits": ["9223372036854775807/s"]}`+more)
		if r := decideN(t, p, policy.Map{"ip": ip}, 1<<62); r.Decision.Allowed || r.Rules[0].RetryAfter != stint.Never || r.Rules[0].Remaining != 1<<63-1 {
			t.Errorf("a cost that wraps, under the greatest limit: %+v", r)
		}
	}
}

// TestOneCall: whatever rules cost, the store is asked once, and says how each
// of their limits stands.
func TestOneCall(t *testing.T) {
	store := newBroken()
	p, err := policy.New(store, parse(t,
		`{"name": "requests", "key": ["ip"], "limits": ["10/s", "30/h fixed_window"]}`,
		`{"name": "bytes", "key": ["jwt.sub"], "cost": 5, "limits": ["100/h fixed_window"]}`,
		`{"name": "tokens", "key": ["ip"], "cost": {"attribute": "tokens", "min": 0}, "limits": ["1000/h fixed_window"]}`), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	attrs := policy.Map{"ip": "192.0.2.7", "jwt.sub": "a", "tokens": "300"}
	var r policy.Result
	left := func() string {
		var all []string
		for _, e := range r.Rules {
			all = append(all, fmt.Sprint(e.Remaining))
		}
		return strings.Join(all, " ")
	}
	var id stint.ReservationID
	for _, c := range []struct {
		what     string
		do       func() error
		asked    int64
		allowed  bool
		left     string
		tightest int
		d        stint.Decision // compared are limit, remaining, taken and the waits
	}{
		{"decide", func() error { return p.Decide(t.Context(), attrs, 1, &r) }, 1, true, "9 29 95 700", 3,
			stint.Decision{Limit: 1000, Remaining: 700, Taken: 300, ResetAfter: time.Hour}},
		{"decide 2", func() error { return p.Decide(t.Context(), attrs, 2, &r) }, 1, true, "7 27 85 100", 3,
			stint.Decision{Limit: 1000, Remaining: 100, Taken: 600, ResetAfter: time.Hour}},
		{"denied", func() error { return p.Decide(t.Context(), attrs, 1, &r) }, 1, false, "7 27 85 100", 3,
			stint.Decision{Limit: 1000, Remaining: 100, RetryAfter: stint.Wait(time.Hour), ResetAfter: time.Hour}},
		{"denied by two", func() error { return p.Decide(t.Context(), attrs, 8, &r) }, 1, false, "7 27 85 100", 3,
			stint.Decision{Limit: 1000, Remaining: 100, RetryAfter: stint.Never, ResetAfter: time.Hour}},
		{"one that costs nothing", func() error {
			return p.Decide(t.Context(), policy.Map{"ip": "192.0.2.7", "jwt.sub": "a", "tokens": "0"}, 7, &r)
		}, 2, true, "0 20 50 100", 0, stint.Decision{Limit: 10, Remaining: 0, Taken: 7, ResetAfter: time.Hour}},
		{"the denied is the tightest", func() error {
			return p.Decide(t.Context(), policy.Map{"ip": "192.0.2.8", "jwt.sub": "a", "tokens": "1"}, 11, &r)
		}, 1, false, "10 30 50 1000", 0, stint.Decision{Limit: 10, Remaining: 10, RetryAfter: stint.Never, ResetAfter: time.Hour}},
		{"refund", func() error { return p.Refund(t.Context(), attrs, 3, &r) }, 1, true, "3 23 65 1000", 0,
			stint.Decision{Limit: 10, Remaining: 3, ResetAfter: time.Hour}},
		{"reserve", func() error {
			id, err = p.Reserve(t.Context(), attrs, 1, time.Minute, &r)
			return err
		}, 1, true, "2 22 60 700", 0, stint.Decision{Limit: 10, Remaining: 2, Taken: 1, ResetAfter: time.Hour}},
		{"settle", func() error {
			if d, err := p.Settle(t.Context(), id, 2); err != nil || !d.Allowed || d.Remaining != 1 || d.Limit != 10 {
				return fmt.Errorf("%+v, %w", d, err)
			}
			return p.Peek(t.Context(), attrs, 0, &r)
		}, 2, true, "1 21 55 400", 0, stint.Decision{Limit: 10, Remaining: 1, ResetAfter: time.Hour}},
	} {
		store.asked.Store(0)
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		d := r.Decision
		if d.Tightest != c.tightest { // without rules in shadow, both are the same index
			t.Errorf("%s: the decision is of limit %d, want %d", c.what, d.Tightest, c.tightest)
		}
		d.Allowed, d.Denied, d.Tightest = false, 0, 0
		if r.Decision.Allowed != c.allowed || left() != c.left || d != c.d || r.Tightest != c.tightest {
			t.Errorf("%s: left %s, tightest %d, %+v\nwant %s, %d, %+v", c.what, left(), r.Tightest, r.Decision, c.left, c.tightest, c.d)
		}
		if got := store.asked.Load(); got != c.asked {
			t.Errorf("%s: the store was asked %d times, want %d", c.what, got, c.asked)
		}
	}
}

// TestDenied: each entry says for itself whether it denied, and until when.
func TestDenied(t *testing.T) {
	p := newPolicy(t,
		`{"name": "a", "key": ["ip"], "limits": ["1/s", "2/m fixed_window"]}`,
		`{"name": "b", "key": ["ip"], "cost": 3, "limits": ["5/h fixed_window"]}`,
		`{"name": "wide", "key": ["ip"], "limits": ["1000/d fixed_window"]}`,
		`{"name": "trial", "shadow": true, "key": ["ip"], "cost": 2, "limits": ["2/m fixed_window", "1/s"]}`)
	attrs := policy.Map{"ip": "192.0.2.7"}
	decide(t, p, attrs)
	r := decide(t, p, attrs)
	want := []struct {
		denied    bool
		remaining int64
		retry     stint.Wait
		reset     time.Duration
	}{
		{true, 0, stint.Wait(time.Second), time.Second},
		{false, 1, 0, time.Minute},
		{true, 2, stint.Wait(time.Hour), time.Hour},
		{false, 999, 0, 24 * time.Hour},
		{false, 2, 0, 0}, // its other limit can never pass
		{true, 1, stint.Never, 0},
	}
	for i, w := range want {
		e := r.Rules[i]
		if e.Denied != w.denied || e.Remaining != w.remaining || e.RetryAfter != w.retry || e.ResetAfter != w.reset {
			t.Errorf("%s: %+v", e.Label, e)
		}
	}
	if d := r.Decision; d.Denied != 0b101 || r.Tightest != 2 || d.Limit != 5 || d.Remaining != 2 || d.RetryAfter != stint.Wait(time.Hour) || !r.ShadowDenied {
		t.Errorf("%d %+v", r.Tightest, d)
	}
}

// TestManyLimits asks under as many limits as a store decides at once, and under one more.
func TestManyLimits(t *testing.T) {
	rule := func(i int, match string) string {
		return fmt.Sprintf(`{"name": "r%d", %s "key": ["ip"], "cost": %d, "limits": ["%d/m", "%d/h fixed_window"]}`, i, match, 1+i%3, 100+i, 50+i)
	}
	var rules []string
	for i := range 32 {
		rules = append(rules, rule(i, ""))
	}
	attrs := policy.Map{"ip": "192.0.2.7", "path": "/"}
	if n := passes(t, newPolicy(t, rules...), attrs); n != 52/3 {
		t.Errorf("%d passed", n)
	}
	_, err := policy.Parse([]byte(`{"rules": [` + strings.Join(append(rules, rule(32, "")), ",\n") + `]}`))
	if err == nil || !strings.Contains(err.Error(), "33:1: rules[32]") || !strings.Contains(err.Error(), "66 limits") {
		t.Errorf("every request held to 66 limits: %v", err)
	}
	p := newPolicy(t, append(rules, rule(32, `"match": {"path": "/x"},`), `{"name": "trial", "shadow": true, "key": ["ip"], "limits": ["2/m"]}`)...)
	if r := decide(t, p, attrs); !r.Decision.Allowed || len(r.Rules) != 65 {
		t.Errorf("%+v", r)
	}
	attrs["path"] = "/x"
	var r policy.Result
	if err := p.Decide(t.Context(), attrs, 1, &r); !errors.Is(err, stint.ErrLayers) || !strings.Contains(err.Error(), "66 limits") {
		t.Errorf("%v", err)
	}
	attrs["path"] = "/"
	if r := decide(t, p, attrs); r.Rules[0].Remaining != 98 {
		t.Errorf("the error has charged: %+v", r.Rules[0])
	}
}

func TestShadow(t *testing.T) {
	p := newPolicy(t,
		`{"name": "trial", "shadow": true, "final": true, "key": ["ip"], "limits": ["2/m"]}`,
		`{"name": "real", "key": ["ip"], "limits": ["4/m"]}`,
		`{"name": "ban", "shadow": true, "match": {"header.x": "bad"}, "block": true}`,
		`{"name": "must", "shadow": true, "key": ["jwt.sub"], "on_missing": "deny", "limits": ["9/m"]}`,
		`{"name": "dear", "shadow": true, "key": ["jwt.sub"], "cost": {"header": "x"}, "limits": ["9/m"]}`)
	attrs := policy.Map{"ip": "192.0.2.7", "jwt.sub": "a"}
	want := []struct{ allowed, shadow bool }{{true, false}, {true, false}, {true, true}, {true, true}, {false, true}}
	for i, w := range want {
		r := decide(t, p, attrs)
		if r.Decision.Allowed != w.allowed || r.ShadowDenied != w.shadow || r.Rules[0].Denied != w.shadow || !r.Rules[0].Shadow {
			t.Errorf("%d: %+v", i, r)
		}
		if r.Decision.Limit != 4 || r.Tightest != 1 || !r.Matched {
			t.Errorf("%d: the shadow shows in the decision: %+v", i, r)
		}
	}
	// The four that passed were charged to the shadows that let them, the
	// denied one to none.
	r := decide(t, p, attrs)
	if r.Rules[2].Remaining != 5 || r.Rules[3].Remaining != 5 {
		t.Errorf("%+v", r.Rules)
	}
	r = decide(t, p, policy.Map{"ip": "192.0.2.8", "header.x": "bad"})
	if !r.Decision.Allowed || !r.ShadowDenied || !r.Rules[2].Denied || r.Rules[2].Action != "block" ||
		!r.Rules[3].Denied || r.Rules[3].Action != "missing" {
		t.Errorf("%+v", r)
	}
	p = newPolicy(t, `{"name": "trial", "shadow": true, "key": ["ip"], "limits": ["1/m"]}`)
	decide(t, p, attrs)
	if r := decide(t, p, attrs); r.Matched || !r.Decision.Allowed || !r.ShadowDenied || r.Tightest != -1 {
		t.Errorf("%+v", r)
	}
}

func TestOnMissing(t *testing.T) {
	type verdict struct {
		pass  int // how many of three requests pass
		match bool
	}
	for word, missing := range map[string]verdict{"shared": {2, true}, "deny": {0, true}, "skip": {3, false}} {
		for _, attrs := range []policy.Map{{"header.k": "a"}, {}, {"header.k": ""}} {
			want := missing
			if attrs["header.k"] != "" {
				want = verdict{2, true}
			}
			p := newPolicy(t, `{"name": "r", "key": ["header.k"], "on_missing": "`+word+`", "final": true, "limits": ["2/m"]}`)
			var got verdict
			for range 3 {
				r := decide(t, p, attrs)
				if got.match = r.Matched; r.Decision.Allowed {
					got.pass++
				} else if want.pass == 0 && (r.Decision.RetryAfter != stint.Never || !r.Rules[0].Missing || r.Tightest != 0) {
					t.Errorf("%+v", r)
				}
			}
			if got != want {
				t.Errorf("%s %v: %+v, want %+v", word, attrs, got, want)
			}
		}
	}
	// An empty value and a missing one share a key, and no other.
	p := newPolicy(t, `{"name": "r", "key": ["header.k"], "limits": ["2/m"]}`)
	decide(t, p, policy.Map{"header.k": ""})
	decide(t, p, policy.Map{})
	if decide(t, p, policy.Map{}).Decision.Allowed || !decide(t, p, policy.Map{"header.k": "-"}).Decision.Allowed {
		t.Error("the shared key is not one")
	}
}

func TestOverridesAndTiers(t *testing.T) {
	p := newPolicy(t, `{
		"name": "api", "key": ["header.k"],
		"tiers": {"by": "jwt.plan", "default": "free", "plans": {"free": "2/m", "pro": ["5/m"], "gone": {"block": true}, "all": {"unlimited": true}}},
		"overrides": [
			{"when": {"header.k": "partner-1"}, "limits": ["7/m"]},
			{"when": {"header.k": "partner-*"}, "limits": ["6/m"]},
			{"when": {"header.k": ["x", "y"], "jwt.plan": "pro"}, "limits": ["4/m"]},
			{"when": {"header.k": "*-test"}, "unlimited": true},
			{"when": {"header.k": "thief"}, "block": true},
			{"name": "vip", "when": {"header.k": "vip"}, "limits": ["9/m", "3/s"]}
		]}`,
		`{"name": "all", "key": [], "limits": ["1000/m"]}`)
	for _, c := range []struct {
		key, plan string
		want      int
		variant   string
	}{
		{"a", "", 2, "tier free"},
		{"b", "unheard of", 2, "tier free"},
		{"c", "pro", 5, "tier pro"},
		{"d", "gone", 0, "tier gone"},
		{"partner-1", "gone", 7, "override"},
		{"partner-2", "", 6, "override"},
		{"x", "pro", 4, "override"},
		{"y", "", 2, "tier free"},
		{"thief", "pro", 0, "override"},
		{"vip", "", 3, "override vip"},
	} {
		attrs := policy.Map{"header.k": c.key, "jwt.plan": c.plan}
		if r := decide(t, p, attrs); r.Rules[0].Variant != c.variant {
			t.Errorf("%v: %q", attrs, r.Rules[0].Variant)
		} else if n := passes(t, p, attrs); n != max(c.want-1, 0) {
			t.Errorf("%v: %d more", attrs, n)
		}
	}
	// Without limits of its own, the rule lets the others decide.
	for _, attrs := range []policy.Map{{"header.k": "a-test"}, {"header.k": "q", "jwt.plan": "all"}} {
		if r := decide(t, p, attrs); len(r.Rules) != 2 || r.Rules[0].Action != "unlimited" || r.Decision.Limit != 1000 || r.Tightest != 1 {
			t.Errorf("%+v", r)
		}
	}
}

func TestEnds(t *testing.T) {
	p := newPolicy(t,
		`{"name": "health", "match": {"path": "/livez"}, "unlimited": true}`,
		`{"name": "banned", "match": {"ip": "203.0.113.0/24"}, "unless": {"path": "/appeal"}, "block": true}`,
		`{"name": "login", "match": {"path": "/login"}, "final": true, "key": ["ip"], "limits": ["2/m"]}`,
		`{"name": "rest", "key": ["ip"], "limits": ["1/m"]}`)
	for _, c := range []struct {
		path, ip string
		rules    string
		pass     int
	}{
		{"/livez", "203.0.113.1", "health", 1000},
		{"/login", "203.0.113.1", "banned", 0},
		{"/appeal", "203.0.113.1", "rest", 1},
		{"/login", "192.0.2.1", "login", 2},
		{"/other", "192.0.2.1", "rest", 1},
	} {
		attrs := policy.Map{"path": c.path, "ip": c.ip}
		r := decide(t, p, attrs)
		var names []string
		for _, e := range r.Rules {
			names = append(names, e.Rule)
		}
		if strings.Join(names, " ") != c.rules || r.Decision.Allowed != (c.pass > 0) || !r.Matched {
			t.Errorf("%s %s: %v %+v", c.path, c.ip, names, r.Decision)
		}
		if c.pass < 1000 {
			if n := passes(t, p, attrs); n != max(c.pass-1, 0) {
				t.Errorf("%s %s: %d more", c.path, c.ip, n)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	base := `"name": "a", "key": ["ip"]`
	for _, c := range []struct {
		old, new string
		want     string // a part of the change, with "!" if Fresh
	}{
		{base + `, "limits": ["10/m"]`, base + `, "limits": ["10/m"]`, ""},
		{base + `, "limits": ["10/m"]`, base + `, "limits": ["20/h"]`, "!limit 20/1h is new: it starts unused"},
		{base + `, "limits": ["10/m"]`, base + `, "limits": ["10/m", "100/h"]`, "!limit 100/1h is new: it starts unused"},
		{base + `, "limits": ["10/m", "100/h"]`, base + `, "limits": ["10/m"]`, "limit 100/1h is gone"},
		{base + `, "limits": ["10/m"]`, base + `, "limits": ["10/m sliding_log"]`, "!limit 10/1m sliding_log is new: it starts unused"},
		{base + `, "limits": ["10/m fixed_window"]`, base + `, "limits": ["10/h fixed_window"]`, "!limit 10/1h fixed_window is new: it starts unused"},
		{base + `, "limits": ["10/m fixed_window"]`, base + `, "limits": ["20/m fixed_window"]`, "becomes"},
		{base + `, "limits": ["10/m"]`, `"name": "a", "key": ["jwt.sub"], "limits": ["10/m"]`, "!other keys start afresh"},
		{base + `, "limits": ["10/m"]`, `"name": "b", "key": ["ip"], "limits": ["10/m"]`, "!is new"},
		{base + `, "limits": ["10/m"]`, base + `, "shadow": true, "limits": ["10/m"]`, "shadow becomes true"},
		{base + `, "limits": ["10/m"]`, base + `, "tiers": {"by": "t", "default": "x", "plans": {"x": "10/m"}}`, "limit 10/1m is new (tier x)"},
		{base + `, "limits": ["10/m"]`, base + `, "block": true`, "block is new"},
		{base + `, "limits": ["10/m"]`, base + `, "limits": ["10/m"], "overrides": [{"when": {"ip": "192.0.2.1"}, "unlimited": true}]`, "unlimited (override) is new"},
		{base + `, "limits": ["10/m"], "overrides": [{"when": {"ip": "192.0.2.1"}, "limits": ["20/m"]}]`, base + `, "limits": ["10/m"], "overrides": [{"when": {"ip": "192.0.2.1"}, "limits": ["30/m"]}]`, "limit 20/1m becomes 30/1m (override)"},
	} {
		changes := parse(t, "{"+c.new+"}").Compare(parse(t, "{"+c.old+"}"))
		want, fresh := strings.CutPrefix(c.want, "!")
		found := want == "" && len(changes) == 0
		for _, ch := range changes {
			found = found || want != "" && strings.Contains(ch.String(), want) && ch.Fresh == fresh
			if ch.Fresh && !fresh {
				t.Errorf("%s: fresh: %v", c.new, ch)
			}
		}
		if !found {
			t.Errorf("%s -> %s: %v, want %q", c.old, c.new, changes, c.want)
		}
	}
}

// TestIndex compares decisions by the index with the explanation, which tries
// every rule.
func TestIndex(t *testing.T) {
	for seed, size := range []int{1, 2, 5, 20, 60, 300} { // the index files rules by how many share an attribute
		t.Run(fmt.Sprint(size), func(t *testing.T) { testIndex(t, rand.New(rand.NewPCG(uint64(seed), 2)), size) })
	}
}

func testIndex(t *testing.T, random *rand.Rand, size int) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	paths := []string{"/a", "/a/**", "/{x}/b", "/a/*/c", "/**/c", "/b*", "/**", "/a/b/c", "/", "/*", "/a/{x}", "/*/b/**", "/a/b*/**"}
	hosts := []string{"a.test", "*.a.test", "b.*", "*", "*a*"}
	ips := []string{"10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32", "0.0.0.0/0"}
	keys := []string{"k", "k*", "*1", "k*1", "x", "kk"}
	var rules []string
	for i := range size {
		conj := func() string {
			var c []string
			for _, a := range [][2]string{
				{"path", pick(paths...)}, {"host", pick(hosts...)}, {"ip", pick(ips...)}, {"header.k", pick(keys...)}, {"method", pick("GET", "POST", "get", "P*")},
			} {
				if random.IntN(3) == 0 {
					c = append(c, fmt.Sprintf("%q: %q", a[0], a[1]))
				}
			}
			if len(c) == 0 {
				return `{"header.none": false}`
			}
			return "{" + strings.Join(c, ", ") + "}"
		}
		field := `"match": ` + conj()
		switch random.IntN(3) {
		case 0:
			field = `"match": [` + conj() + "," + conj() + `]`
		case 1:
			field += `, "unless": ` + conj()
		}
		rules = append(rules, fmt.Sprintf(`{"name": "r%d", %s, "shadow": true, "key": [], "limits": ["1/s"],
			"overrides": [{"when": %s, "limits": ["2/s"]}, {"when": %s, "unlimited": true}]}`, i, field, conj(), conj()))
	}
	p := newPolicy(t, rules...)
	for range 300 {
		attrs := policy.Map{
			"path": pick("/", "/a", "/a/b", "/a/x/c", "/a/b/c", "/bb", "/x/b", "/c", "/x/b/y/z", "/a/bb/x", "/a/b/c/d"), "host": pick("a.test", "x.a.test", "b.test", "c"),
			"ip": pick("10.1.2.3", "10.2.2.3", "192.0.2.1", "2001:db8::1", "-"), "method": pick("GET", "POST", "HEAD", "get", "Post"),
		}
		if random.IntN(4) > 0 {
			attrs["header.k"] = pick("k", "k1", "kk", "x1", "")
		}
		e, err := p.Explain(attrs)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, x := range e.Rules {
			if x.Applies {
				want = append(want, x.Rule+x.Limits[0].Variant+x.Limits[0].Text)
			}
		}
		for _, x := range decide(t, p, attrs).Rules {
			got = append(got, x.Rule+x.Variant+x.Text)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Fatalf("%v: by index %v, one by one %v", attrs, got, want)
		}
	}
}

// TestAddressForms counts each address under one key in all the forms that callers send it in, those of
// a network under one if a rule says so, and what is no address as missing.
func TestAddressForms(t *testing.T) {
	networks := [][][]string{ // networks of /24 and /48, and in these what has one key without a word about it
		{
			{"203.0.113.7", "203.0.113.7:4711", "203.0.113.7:0", "::ffff:203.0.113.7", "::ffff:cb00:7107", "[::ffff:203.0.113.7]:4711", "::ffff:203.0.113.7%eth0"},
			{"203.0.113.8"},
		},
		{{"1.2.3.4", "1.2.3.4:5"}}, // no longer than an address may be
		{
			{"2001:db8::1", "2001:DB8:0::1", "2001:DB8:0:0:ffff::1%eth0", "2001:db8::1%eth0", "[2001:db8::1]:80", "[2001:db8::1%eth0]:80"},
			{"2001:db8:0:1::1"},
		},
		{{"2001:db8:1::1"}},
		{{"", "unknown", "203.0.113.7:", "203.0.113.7:http", "203.0.113.7:70000", "[203.0.113.7]:80", "[2001:db8::1]", "[2001:db8::1", "2001:db8::1]:80", "203.0.113.7 :80"}},
	}
	for field, wide := range map[string]bool{`"key": ["ip"]`: false, `"key": ["ip", "path"]`: false, `"key": ["ip"], "ipv4_prefix": 24, "ipv6_prefix": 48`: true} {
		p := newPolicy(t, `{"name": "r", `+field+`, "limits": ["100/m"]}`)
		of := make(map[string]string) // what has a key
		for _, network := range networks {
			for _, forms := range network {
				who := forms[0]
				if wide {
					who = network[0][0]
				}
				for _, form := range forms {
					r := decide(t, p, policy.Map{"ip": form, "path": "/"})
					key := r.Key(0) + r.KeyHash(0)
					if was, met := of[key]; met && was != who || len(r.KeyHash(0)) != 16 || r.Rules[0].Missing != (who == "") {
						t.Errorf("%s, %q: key %q, also of %q, missing %t", field, form, key, was, r.Rules[0].Missing)
					}
					of[key] = who
				}
			}
		}
		if want := map[bool]int{false: 7, true: 5}[wide]; len(of) != want {
			t.Errorf("%s: %d keys, want %d: %v", field, len(of), want, of)
		}
	}
}

// TestTag: keys of rules that share an attribute have one tag, if the attribute is the first
// or the field tag names it.
func TestTag(t *testing.T) {
	const ip, other = "192.0.2.7", "2001:db8::1"
	p := newPolicy(t,
		`{"name": "a", "key": ["ip"], "limits": ["9/m"]}`,
		`{"name": "b", "key": ["ip", "path"], "limits": ["9/m"]}`,
		`{"name": "c", "key": ["path", "header.x", "ip"], "tag": "ip", "limits": ["9/m"]}`,
		`{"name": "d", "key": ["path", "ip"], "limits": ["9/m"]}`,
		`{"name": "e", "key": ["ip"], "tag": "ip", "limits": ["9/m"]}`,
		`{"name": "f", "key": ["ip", "header.x"], "tag": "header.x", "limits": ["9/m"]}`,
		`{"name": "g", "key": [], "limits": ["9/m"]}`)
	for _, c := range []struct {
		attrs policy.Map
		want  []string
	}{
		{policy.Map{"ip": ip, "path": "/a", "header.x": "y"}, []string{ip, ip, ip, "/a", ip, "y", ""}},
		{policy.Map{"ip": ip, "path": "/a"}, []string{ip, ip, ip, "/a", ip, "-9:" + ip, ""}},
		{policy.Map{"ip": ip, "path": "/" + strings.Repeat("a", 300), "header.x": "y"}, []string{ip, ip, ip, "~", ip, "y", ""}},
		{policy.Map{"ip": other, "path": "/a", "header.x": "1:a1:b"}, []string{"2001:db8::", "2001:db8::", "2001:db8::", "/a", "2001:db8::", "1:a1:b", ""}},
	} {
		r := decide(t, p, c.attrs)
		for i, want := range c.want {
			if got := policy.Tag(r.Key(i)); got != want && !(want == "~" && strings.HasPrefix(got, "~")) {
				t.Errorf("%v: the tag of %q is %q, want %q", c.attrs, r.Key(i), got, want)
			}
		}
	}
	for _, key := range []string{"", "-", "~", ":", "1", "1:", "1:a", "1::2", "1:a-x", "1:a2:b", "0:1:a", "+1:a1:b", "01:a", "65536:a", "2001:db8::1", "192.0.2.1:80", "18446744073709551617:a1:b"} {
		if got := policy.Tag(key); got != key {
			t.Errorf("the tag of %q is %q", key, got)
		}
	}
}

// FuzzKeys: two keys are the same only if all attributes are.
func FuzzKeys(f *testing.F) {
	f.Add("a_b", "c", "a", "b_c")
	f.Add("", "1:a", "1:a", "")
	f.Add("-", "", "", "-")
	f.Add("~", "x", "~x", "")
	f.Add(strings.Repeat("a", 257), "b", strings.Repeat("a", 256), "ab")
	one := `{"name": "one", "key": ["x"], "limits": ["1/s"]}`
	two := `{"name": "two", "key": ["x", "y"], "limits": ["1/s"]}`
	p := newPolicy(f, one, two)
	hashed, err := policy.New(memstore.New(memstore.Options{}), parse(f, strings.ReplaceAll(one, `"limits"`, `"hash_key": true, "limits"`),
		strings.ReplaceAll(two, `"limits"`, `"hash_key": true, "limits"`)), policy.Options{Secret: []byte("0123456789abcdef")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, ax, ay, bx, by string) {
		for _, p := range []*policy.Policy{p, hashed} {
			a, b := decide(t, p, policy.Map{"x": ax, "y": ay}), decide(t, p, policy.Map{"x": bx, "y": by})
			if (a.Key(0) == b.Key(0)) != (ax == bx) {
				t.Errorf("%q and %q: %q and %q", ax, bx, a.Key(0), b.Key(0))
			}
			if (a.Key(1) == b.Key(1)) != (ax == bx && ay == by) {
				t.Errorf("%q %q and %q %q: %q and %q", ax, ay, bx, by, a.Key(1), b.Key(1))
			}
			// A client cannot send the hash of a value in place of the value.
			if c := decide(t, p, policy.Map{"x": a.Key(0)}); ax != a.Key(0) && ax != "" && c.Key(0) == a.Key(0) {
				t.Errorf("%q is taken for the key of %q", a.Key(0), ax)
			}
			if ax != "" && policy.Tag(a.Key(1)) != a.Key(0) {
				t.Errorf("%q: the tag of %q is %q, not %q", ax, a.Key(1), policy.Tag(a.Key(1)), a.Key(0))
			}
			if len(a.Key(0)) > 256 || len(a.Key(1)) > 256 {
				t.Errorf("a key of %d bytes", len(a.Key(1)))
			}
			if p == hashed && len(ax) > 4 && strings.Contains(a.Key(0)+a.Key(1), ax) {
				t.Errorf("%q shows in %q", ax, a.Key(0))
			}
		}
	})
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		want  string
		rules []string
	}{
		{"", []string{`{"name": "a", "key": ["ip"], "limits": ["1/s"]}`}},
		{"values of header.k", []string{`{"name": "a", "key": ["header.k"], "limits": ["1/s"]}`}},
		{"values of path", []string{`{"name": "a", "match": {"path": "/x/**"}, "key": ["path"], "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "match": {"path": ["/x", "/y"]}, "key": ["path"], "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "match": {"path": "/x/y"}, "key": ["header.k"], "limits": ["1/s"]}`, `{"name": "b", "match": {"path": "/x/**"}, "key": ["ip"], "limits": ["9/s"]}`}},
		{"values of header.k", []string{`{"name": "a", "match": {"path": "/x/y"}, "key": ["header.k"], "limits": ["1/s"]}`, `{"name": "b", "match": {"path": "/z/**"}, "key": ["ip"], "limits": ["9/s"]}`}},
		{"", []string{`{"name": "a", "key": ["jwt.sub"], "limits": ["1/s"]}`}},
		{"never reached: rule a", []string{`{"name": "a", "match": {"path": "/x/**"}, "unlimited": true}`, `{"name": "b", "match": {"path": "/x/{id}", "method": "GET"}, "key": ["ip"], "limits": ["9/s"]}`}},
		{"never reached: rule a", []string{`{"name": "a", "final": true, "key": ["ip"], "limits": ["9/s"]}`, `{"name": "b", "block": true}`}},
		{"", []string{`{"name": "a", "final": true, "unless": {"ip": "10.0.0.0/8"}, "key": ["ip"], "limits": ["9/s"]}`, `{"name": "b", "block": true}`}},
		{"never reached: rule a", []string{`{"name": "a", "match": {"ip": "10.0.0.0/8"}, "block": true}`, `{"name": "b", "match": {"ip": ["10.1.0.0/16", "10.2.3.4"]}, "key": ["ip"], "limits": ["9/s"]}`}},
		{"", []string{`{"name": "a", "match": {"host": "a.*"}, "block": true}`, `{"name": "b", "match": {"host": "*.b"}, "key": ["ip"], "limits": ["9/s"]}`}},
		{"override by ip is never reached", []string{`{"name": "a", "key": ["ip"], "limits": ["1/s"], "overrides": [{"when": {"ip": "10.0.0.0/8"}, "limits": ["2/s"]}, {"when": {"ip": "10.0.0.1"}, "limits": ["3/s"]}]}`}},
		{"never reached: the one in line 1", []string{`{"name": "a", "key": ["jwt.k"], "limits": ["1/s"], "overrides": [{"when": {"jwt.k": "p-*"}, "limits": ["2/s"]}, {"when": {"jwt.k": "p-1"}, "limits": ["3/s"]}]}`}},
		{"pays nothing", []string{`{"name": "a", "key": ["ip"], "cost": {"header": "c", "min": 0}, "limits": ["1/s"]}`}},
		{"chooses its tier", []string{`{"name": "a", "key": ["ip"], "limits": ["1/s"], "tiers": {"by": "header.plan", "plans": {"pro": "9/s"}}}`}},
		{"a client that sends header.x-team has no limit", []string{`{"name": "a", "key": ["ip"], "limits": ["1/s"], "overrides": [{"name": "vip", "when": {"header.x-team": "vip", "path": "/x"}, "unlimited": true}]}`}},
		{"a client that sends query.in leaves the rule", []string{`{"name": "a", "key": ["ip"], "limits": ["1/s"], "unless": {"query.in": "1"}}`}},
		{"", []string{`{"name": "a", "key": ["ip"], "limits": ["1/s"], "unless": [{"path": "/x"}, {"header.x-team": "vip", "ip": "10.0.0.0/8"}, {"header.x-team": false}], "overrides": [{"when": {"ip": "10.0.0.0/8"}, "unlimited": true}]}`, `{"name": "b", "match": {"header.k": ["4711", "12"]}, "key": ["header.k"], "limits": ["1/s"], "overrides": [{"when": {"header.k": "4711"}, "unlimited": true}]}`}},
		{"/a/login.php/x, which many servers hand to /a/login.php too", []string{`{"name": "a", "match": {"path": ["/a/b", "/a/login.php"]}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "match": {"path": ["/login.php/**", "/*.php", "/x.php/y", "/php"]}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "match": {"path": "/status.php"}, "unlimited": true}`}},
		{"none can ever pass", []string{`{"name": "a", "key": ["ip"], "cost": 5, "limits": ["1/s"]}`}},
		{`path /users/:id: ":id" is plain text here; for any one segment write {id}`, []string{`{"name": "a", "match": {"path": ["/a", "/users/:id"]}, "key": ["ip"], "limits": ["1/s"]}`}},
		{`"<int:id>" is plain text here; for any one segment write {id}`, []string{`{"name": "a", "key": ["ip"], "limits": ["1/s"], "unless": {"path": "/users/<int:id>/x"}}`}},
		{"", []string{`{"name": "a", "match": {"path": "/v1/{id}/a:b"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"path /login|/signup: it is plain text here", []string{`{"name": "a", "match": {"path": "/login|/signup"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"path /login, /signup: it is plain text here", []string{`{"name": "a", "match": {"path": "/login, /signup"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"path /login$: it is plain text here", []string{`{"name": "a", "match": {"path": "/login$"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"path /api/.*: it is plain text here", []string{`{"name": "a", "match": {"path": "/api/.*"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"path /api/(v1)/x: it is plain text here", []string{`{"name": "a", "match": {"path": "/api/(v1)/x"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"path /users/[id]: it is plain text here", []string{`{"name": "a", "match": {"path": "/users/[id]"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{`"*rest" is one segment that ends so; for any segments write **`, []string{`{"name": "a", "match": {"path": "/api/*rest"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "match": {"path": ["/a/*.png", "/*_x", "/*-x/y", "/x.*", "/a*", "/a,b", "/{*rest}", "/{name...}"]}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"header.x-plan pro|free: it is plain text here", []string{`{"name": "a", "match": {"header.x-plan": "pro|free"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"header.x-plan !pro: it is plain text here", []string{`{"name": "a", "match": {"header.x-plan": "!pro"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"header.x-plan /curl.*/: it is plain text here", []string{`{"name": "a", "match": {"header.x-plan": "/curl.*/"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"header.x-plan ^pro: it is plain text here", []string{`{"name": "a", "match": {"header.x-plan": "^pro"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"header.x-plan curl.*: it is plain text here", []string{`{"name": "a", "match": {"header.x-plan": "curl.*"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "match": {"header.accept": ["text/html, */*", "a/b", "curl/*"]}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"unless excepts all that match lets in", []string{`{"name": "a", "match": {"path": "/login"}, "unless": {"path": "/**"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"header.x_bad has an underscore: stint proxy takes such headers away, so that rules see none", []string{`{"name": "a", "match": {"header.x_bad": true}, "block": true}`}},
		{"ANY is no method of HTTP; for any method leave method out", []string{`{"name": "a", "match": {"method": "ANY"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"FETCH is no method of HTTP", []string{`{"name": "a", "match": {"method": "fetch"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"header.user-agent /bot/i: it is plain text here", []string{`{"name": "a", "match": {"header.user-agent": "/bot/i"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{`"{login,signup}" is any one segment here; write [/a, /b] for a list`, []string{`{"name": "a", "match": {"path": "/{login,signup}"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"ipv4_prefix and ipv6_prefix have no effect", []string{`{"name": "a", "key": ["jwt.sub"], "ipv6_prefix": 48, "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "key": ["jwt.sub", "ip"], "ipv6_prefix": 48, "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "match": {"method": ["*", "MKCOL"]}, "unless": {"path": "/**", "method": "HEAD"}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"PSOT is no method of HTTP; did you mean POST?", []string{`{"name": "a", "match": {"method": ["GET", "psot"]}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"", []string{`{"name": "a", "match": {"method": ["get", "PURGE", "LOCK", "MOVE", "COPY", "REPORT", "P*"]}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"from trusted proxies alone", []string{`{"name": "a", "match": {"header.x-real-ip": true}, "key": ["ip"], "limits": ["1/s"]}`}},
		{"from trusted proxies alone", []string{`{"name": "a", "key": ["header.X-Forwarded-For", "ip"], "limits": ["1/s"]}`}},
		{"no effect in shadow", []string{`{"name": "a", "key": ["ip"], "final": true, "shadow": true, "limits": ["1/s"]}`}},
	} {
		var all []string
		for _, w := range parse(t, c.rules...).File().Warnings() {
			if strings.Contains(w.Reason, "is not declared") {
				continue // TestUndeclared
			}
			if w.Line == 0 || w.Rule == "" && !strings.Contains(w.Reason, "stint proxy takes") {
				t.Errorf("%+v", w)
			}
			all = append(all, w.String())
		}
		if got := strings.Join(all, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v:\n%s\nwant %q", c.rules, got, c.want)
		}
	}
}

func TestNewErrors(t *testing.T) {
	mem := memstore.New(memstore.Options{})
	rules := parse(t, `{"name": "a", "key": ["ip"], "hash_key": true, "limits": ["1/s"]}`)
	wants := func(what string) func(*policy.Policy, error) {
		return func(p *policy.Policy, err error) {
			if p != nil || err == nil {
				t.Errorf("without %s: %v", what, err)
			}
		}
	}
	wants("a store")(policy.New(nil, rules, policy.Options{}))
	wants("rules")(policy.New(mem, nil, policy.Options{}))
	wants("a secret")(policy.New(mem, rules, policy.Options{}))
	wants("a long secret")(policy.New(mem, rules, policy.Options{Secret: []byte("short")}))
}

// TestAllocations: a decision on one rule costs the garbage collector nothing.
func TestAllocations(t *testing.T) {
	attrs := &request{method: "POST", path: "/login", ip: "192.0.2.7", key: "k"}
	for _, c := range []struct {
		most float64
		rule string
	}{
		{0, `{"name": "a", "match": {"path": "/other"}, "key": ["ip"], "limits": ["1000000/s"]}`},
		{0, `{"name": "a", "match": {"path": "/login", "method": "POST"}, "key": ["ip"], "limits": ["1000000/s"]}`},
		{0, `{"name": "a", "key": ["header.x-api-key"], "limits": ["1000000/s", "90000000/h fixed_window"]}`},
		{1, `{"name": "a", "key": ["ip", "header.x-api-key"], "limits": ["1000000/s"]}`},
		{0, `{"name": "a", "match": {"ip": "192.0.2.0/24"}, "block": true}`},
	} {
		p := newPolicy(t, c.rule)
		var r policy.Result
		least := math.Inf(1)
		for range 3 { // others may allocate meanwhile
			least = min(least, testing.AllocsPerRun(100, func() {
				if err := p.Decide(context.Background(), attrs, 1, &r); err != nil {
					t.Fatal(err)
				}
			}))
		}
		if least > c.most {
			t.Errorf("%s: %v allocations", c.rule, least)
		}
	}
}

// TestDigest: the digest depends on the rules' names and limits, and on nothing else.
func TestDigest(t *testing.T) {
	a, b := `{"name": "a", "key": ["ip"], "limits": ["10/h"]}`, `{"name": "b", "key": ["ip"], "limits": ["10/h", "3/m"]}`
	one := parse(t, a, b).Digest()
	for name, c := range map[string]struct {
		rules []string
		same  bool
	}{
		"another order": {[]string{b, a}, true},
		"another key":   {[]string{strings.Replace(a, "ip", "path", 1), b}, true},
		"another limit": {[]string{strings.Replace(a, "10/h", "11/h", 1), b}, false},
		"another name":  {[]string{strings.Replace(a, `"a"`, `"c"`, 1), b}, false},
		"one rule less": {[]string{a}, false},
	} {
		if got := parse(t, c.rules...).Digest(); (got == one) != c.same {
			t.Errorf("%s: %q beside %q", name, got, one)
		}
	}
	if got := parse(t, `{"name": "all", "unlimited": true}`).Digest(); got != "" {
		t.Errorf("rules without limits have the digest %q", got)
	}
}
