package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

const standingRules = `{"rules": [
	{"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"], "limits": ["5 per minute sliding_log"]},
	{"name": "api", "unless": {"path": "/health"}, "key": ["header.x-api-key"], "limits": ["10/h", "5 per minute fixed_window"]},
	{"name": "all", "key": [], "limits": ["1000/h"], "shadow": true},
	{"name": "inside", "match": {"ip": "10.0.0.0/8"}, "key": ["ip"], "limits": ["1/h"]},
	{"name": "office", "match": {"ip": "192.0.2.0/24"}, "unlimited": true},
	{"name": "last", "key": ["ip"], "limits": ["9/h"]}
]}`

func newStanding(t *testing.T, text string) *policy.Policy {
	t.Helper()
	return made.Policy(t, memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), made.Rules(t, text), policy.Options{})
}

// told writes standings as text.
func told(all []policy.Standing, left []policy.LeftOut) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "%s %q:", s.Rule, s.Key)
		for _, l := range s.Limits {
			fmt.Fprintf(&b, " %d of %s", l.Remaining, l.Text)
			if l.Denied {
				fmt.Fprintf(&b, " denied %v", l.RetryAfter)
			}
		}
		if len(s.Where) > 0 {
			fmt.Fprintf(&b, " where %s", strings.Join(s.Where, " and "))
		}
		if s.Own {
			b.WriteString(" own")
		}
		if s.Ends {
			b.WriteString(" ends")
		}
		b.WriteString("\n")
	}
	for _, l := range left {
		fmt.Fprintf(&b, "left out %s: %s\n", l.Rule, strings.Join(l.Missing, " "))
	}
	return b.String()
}

// TestStandingsOfPlans asks about clients of whom it is not known which plan they have.
func TestStandingsOfPlans(t *testing.T) {
	p := newStanding(t, `{"rules":[{"name":"api","key":["user"],"limits":["100/h"],"overrides":[{"name":"house","when":{"header.x-team":"a","method":"GET"},"limits":["5/h"]}],"tiers":{"by":"jwt.plan","plans":{"pro":["1000/h"]}}}]}`)
	for _, c := range []struct {
		attrs policy.Map
		want  string
	}{
		{policy.Map{"user": "u"}, "left out api: header.x-team method jwt.plan\n"},
		{policy.Map{"user": "u", "method": "POST"}, "left out api: jwt.plan\n"},
		{policy.Map{"user": "u", "method": "POST", "jwt.plan": "pro"}, "api \"u\": 1000 of 1000/1h\n"},
		{policy.Map{"user": "u", "method": "GET", "header.x-team": "a"}, "api \"u\": 5 of 5/1h\n"},
	} {
		all, left, _, err := p.Standings(t.Context(), c.attrs)
		if got := told(all, left); err != nil || got != c.want {
			t.Errorf("%v: %v\n%s\nwant\n%s", c.attrs, err, got, c.want)
		}
	}
}

// TestStandings asks about clients of whom more or less is known.
func TestStandings(t *testing.T) {
	p := newStanding(t, standingRules)
	for range 5 {
		decide(t, p, policy.Map{"method": "POST", "path": "/login", "ip": "198.51.100.7", "header.x-api-key": "k"})
	}
	for _, c := range []struct {
		attrs policy.Map
		want  string
	}{
		{policy.Map{"ip": "198.51.100.7"}, `login "198.51.100.7": 0 of 5/1m sliding_log denied 1m0s where method is POST and path is /login
all "": 995 of 1000/1h
last "198.51.100.7": 4 of 9/1h
left out api: header.x-api-key
`},
		{policy.Map{"ip": "198.51.100.7", "path": "/login", "method": "GET", "header.x-api-key": "k"}, `api "k": 5 of 10/1h 0 of 5/1m fixed_window denied 20s
all "": 995 of 1000/1h
last "198.51.100.7": 4 of 9/1h
`},
		{policy.Map{"header.x-api-key": "k"}, `api "k": 5 of 10/1h 0 of 5/1m fixed_window denied 20s where not (path is /health)
all "": 995 of 1000/1h
office "": -1 of unlimited where ip is 192.0.2.0/24 ends
left out login: ip
left out inside: ip
left out last: ip
`},
		{policy.Map{"ip": "192.0.2.7", "path": "/"}, `all "": 995 of 1000/1h
office "": -1 of unlimited ends
left out api: header.x-api-key
`},
	} {
		all, left, more, err := p.Standings(t.Context(), c.attrs)
		if got := told(all, left); got != c.want || err != nil || more {
			t.Errorf("%v: %v %v\n%s\nwant\n%s", c.attrs, more, err, got, c.want)
		}
	}
	_, _, _, err := p.Standings(t.Context(), policy.Map{"ip": "192.0.2.7.example"})
	if !errors.Is(err, policy.ErrRequest) {
		t.Errorf("no address: %v", err)
	}
}

// TestStandingsSkipped leaves out a rule that a request without its key is not held
// to: it does not hold, and ends nothing.
func TestStandingsSkipped(t *testing.T) {
	p := newStanding(t, `{"rules": [
		{"name": "token", "key": ["header.x-api-key"], "limits": ["1/h"], "on_missing": "skip", "final": true},
		{"name": "address", "key": ["ip"], "limits": ["9/h"]}
	]}`)
	all, left, _, err := p.Standings(t.Context(), policy.Map{"ip": "192.0.2.7", "header.x-api-key": ""})
	if got, want := told(all, left), "address \"192.0.2.7\": 9 of 9/1h\n"; err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

// TestStandingsMany asks about a client under more rules than one decision can
// have limits, and more than are listed.
func TestStandingsMany(t *testing.T) {
	var b strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&b, `,{"name": "r%d", "match": {"path": "/%d"}, "key": ["ip"], "limits": ["%d/h", "%d/d"]}`, i, i, i+1, i+2)
	}
	p := newStanding(t, `{"rules": [`+b.String()[1:]+`]}`)
	all, _, more, err := p.Standings(t.Context(), policy.Map{"ip": "192.0.2.7"})
	if err != nil || !more || len(all) != 1000 {
		t.Fatalf("%d %v %v", len(all), more, err)
	}
	for i, s := range all {
		if len(s.Limits) != 2 || s.Limits[0].Remaining != int64(i+1) || s.Limits[1].Remaining != int64(i+2) {
			t.Fatalf("rule %d: %+v", i, s)
		}
	}
}

// TestByKey gives a key limits of its own, resets and refunds it, and takes the refund back.
func TestByKey(t *testing.T) {
	p := newStanding(t, standingRules)
	for range 3 {
		decide(t, p, policy.Map{"ip": "198.51.100.9", "header.x-api-key": "k"})
	}
	want := func(text string) {
		t.Helper()
		all, _, _, err := p.Standings(t.Context(), policy.Map{"header.x-api-key": "k", "path": "/"})
		if got := told(all[:1], nil); got != text+"\n" || err != nil {
			t.Errorf("%v %s, want %s", err, got, text)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want(`api "k": 7 of 10/1h 2 of 5/1m fixed_window`)
	check(p.ResetKey(t.Context(), "api", "k"))
	want(`api "k": 10 of 10/1h 5 of 5/1m fixed_window`)
	all, err := p.UsedOf(t.Context(), "api", "k")
	check(err)
	n, err := p.ChargeKey(t.Context(), "api", "k", all[1].Label, "", 9)
	check(err)
	if n != 5 {
		t.Errorf("charged %d, want 5", n)
	}
	want(`api "k": 10 of 10/1h 0 of 5/1m fixed_window denied 20s`)
	check(p.RefundKey(t.Context(), "api", "k", 2))
	want(`api "k": 10 of 10/1h 2 of 5/1m fixed_window`)
	check(p.SetOverride("api", "k", policy.Override{Block: true}))
	want(`api "k": 0 of block denied never own ends`)
	l, err := stint.Parse("100/h")
	check(err)
	check(p.SetOverride("api", "k", policy.Override{Limits: []stint.Limit{l}}))
	want(`api "k": 100 of 100/1h own`)
	if all, err = p.UsedOf(t.Context(), "api", "k"); err != nil || len(all) != 3 || all[1].Remaining != 2 || all[2].Remaining != 100 {
		t.Errorf("%v %+v", err, all)
	}
	if err := p.ResetKey(t.Context(), "nowhere", "k"); !errors.Is(err, policy.ErrNoRule) {
		t.Errorf("%v, want ErrNoRule", err)
	}
}

// TestStandingsWithoutStore: each rule goes by its own on_store_failure, since rules that may
// hold a client need not meet in one request.
func TestStandingsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &broken{Store: memstore.New(memstore.Options{})}
		p, err := policy.New(store, parse(t,
			`{"name": "login", "match": {"path": "/login"}, "key": ["ip"], "limits": ["5/m"], "on_store_failure": "closed"}`,
			`{"name": "news", "match": {"path": "/news"}, "key": ["ip"], "limits": ["5/m"], "on_store_failure": "open"}`,
			`{"name": "tried", "key": ["ip"], "limits": ["5/m"], "shadow": true}`,
			`{"name": "site", "key": ["ip"], "limits": ["2/h", "9/24h"]}`), policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		store.down.Store(true)
		for range 2 {
			if err := p.Decide(t.Context(), policy.Map{"ip": "192.0.2.7", "path": "/a"}, 1, new(policy.Result)); err != nil {
				t.Fatal(err)
			}
		}
		all, _, _, err := p.Standings(t.Context(), policy.Map{"ip": "192.0.2.7"})
		if err != nil || len(all) != 4 || len(all[3].Limits) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		for i, want := range []struct {
			use    string
			failed policy.Failure
			denied bool
		}{
			{"-1 of 5, 0 left", policy.FailClosed, true}, {"-1 of 5, -1 left", policy.FailOpen, false},
			{"-1 of 5, -1 left", policy.FailOpen, false}, {"2 of 2, 0 left", policy.FailLocal, true},
		} {
			e := &all[i].Limits[0]
			if use(all[i].Limits) != want.use || e.Failed != want.failed || e.Denied != want.denied || !errors.Is(all[i].Err, errDown) {
				t.Errorf("%s: %s, %v, denied %v, %v", all[i].Rule, use(all[i].Limits), e.Failed, e.Denied, all[i].Err)
			}
		}
		if got := use(all[3].Limits[1:]); got != "2 of 9, 7 left" {
			t.Errorf("the second limit: %s", got)
		}
	})
}

// TestIdleOverride: an override under a rule that has no limits does nothing, and is told.
func TestIdleOverride(t *testing.T) {
	p := newStanding(t, `{"rules": [
		{"name": "shut", "match": {"path": "/shut"}, "key": ["ip"], "block": true},
		{"name": "tiers", "match": {"path": "/t"}, "key": ["ip"], "tiers": {"by": "user", "plans": {"pro": {"unlimited": true}}, "default": "pro"}, "shadow": true},
		{"name": "office", "key": ["ip"], "unlimited": true}
	]}`)
	for _, rule := range []string{"shut", "tiers", "office"} {
		if err := p.SetOverride(rule, "192.0.2.7", policy.Override{Block: true}); err != nil {
			t.Fatal(err)
		}
	}
	all, _, _, err := p.Standings(t.Context(), policy.Map{"ip": "192.0.2.7"})
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, s := range all {
		limited, shadow, err := p.Rules().Overridable(s.Rule)
		if tiers := s.Rule == "tiers"; s.Own != tiers || s.Idle == tiers || limited != tiers || shadow != tiers || err != nil {
			t.Errorf("%s: own %v, idle %v; limited %v, shadow %v, %v", s.Rule, s.Own, s.Idle, limited, shadow, err)
		}
	}
	if _, _, err := p.Rules().Overridable("none"); !errors.Is(err, policy.ErrNoRule) {
		t.Error(err)
	}
}
