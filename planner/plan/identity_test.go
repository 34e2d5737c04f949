package plan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/planner/plan"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/simulate"
)

// An apiCall is a request to an API whose users have plans.
type apiCall struct {
	at                   time.Duration
	ip, user, plan, path string
}

// calls are of 200 users of a free plan behind ten addresses and 40 of a paid one,
// who send twenty times as much, and of people without a name. One user of the
// free plan sends as much as a hundred.
func calls(seed uint64) (all []apiCall) {
	rnd := rand.New(rand.NewPCG(seed, 3))
	add := func(at float64, ip, user, plan, path string) {
		if at < 7200 {
			all = append(all, apiCall{time.Duration(at * float64(time.Second)), ip, user, plan, path})
		}
	}
	for i := range 200 {
		for at := rnd.Float64() * 300; at < 7200; at += 100 + rnd.Float64()*200 {
			for k := range 1 + rnd.IntN(4) {
				add(at+float64(k), fmt.Sprintf("198.51.100.%d", i%10), fmt.Sprintf("free-%d", i), "free", fmt.Sprintf("/api/items/%d", rnd.IntN(999)))
			}
		}
	}
	for i := range 40 {
		for at := rnd.Float64() * 20; at < 7200; at += 5 + rnd.Float64()*10 {
			for k := range 3 + rnd.IntN(8) {
				add(at+0.2*float64(k), fmt.Sprintf("203.0.113.%d", i), fmt.Sprintf("pro-%d", i), "pro", fmt.Sprintf("/api/items/%d", rnd.IntN(999)))
			}
		}
	}
	for i := range 60 {
		for at := rnd.Float64() * 600; at < 7200; at += 200 + rnd.Float64()*400 {
			add(at, fmt.Sprintf("192.0.2.%d", i), "", "", "/api/public")
		}
	}
	for i := range 7200 * 2 {
		add(float64(i)/2, "198.51.100.3", "free-3", "free", "/api/items/1")
	}
	slices.SortStableFunc(all, func(a, b apiCall) int { return int(min(max(a.at-b.at, -1), 1)) })
	return all
}

func callLog(all []apiCall) string {
	var b strings.Builder
	for _, c := range all {
		line := map[string]any{"time": truthStart.Add(c.at).Format(time.RFC3339Nano), "ip": c.ip, "method": "GET", "path": c.path, "status": 200}
		if c.user != "" {
			line["user"], line["plan"] = c.user, c.plan
		}
		if c.user == "free-3" && c.path == "/api/items/1" {
			line["status"] = 403
		}
		text, err := json.Marshal(line)
		if err != nil {
			panic(err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String()
}

// Where most requests of a route have a name, the proposal goes by it, with a
// tier for each plan, and by address only for those without: so that ten offices
// are not one client each, and the one that sends far too much is denied.
func TestProposeIdentities(t *testing.T) {
	need.Time(t)
	unraced(t)
	all := calls(1)
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(callLog(all)), Margin: 0.2})
	if err != nil || p.File == "" {
		t.Fatalf("%v, %+v", err, p)
	}
	for _, want := range []string{"attributes: [user, plan]", "- name: api-by-user", "key: [user]", "on_missing: skip", "tiers: {by: plan, default: 'free', plans: {'free': ", "- name: api\n    match: {path: ['/api/**'], user: false}\n    key: [ip]"} {
		if !strings.Contains(p.File, want) {
			t.Errorf("no %q in\n%s", want, p.File)
		}
	}
	f, err := rules.Decode("stint.yaml", []byte(strings.ReplaceAll(p.File, "shadow: true", "shadow: false")))
	if err != nil {
		t.Fatalf("%v in\n%s", err, p.File)
	}
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	decider := made.Policy(t, store, f.Rules, policy.Options{})
	denied, sent := map[string]int{}, map[string]int{}
	var result policy.Result
	for _, c := range all {
		clock.Advance(truthStart.Add(c.at).UnixNano())
		seen := visitAttributes{"ip": c.ip, "method": "GET", "path": c.path}
		if c.user != "" {
			seen["user"], seen["plan"] = c.user, c.plan
		}
		if err := decider.Decide(context.Background(), seen, 1, &result); err != nil {
			t.Fatal(err)
		}
		who := c.plan
		if c.user == "free-3" {
			who = c.user
		}
		if sent[who]++; !result.Decision.Allowed {
			denied[who]++
		}
	}
	if denied["free-3"]*2 < sent["free-3"] || denied["free"]+denied["pro"]+denied[""] > 0 {
		t.Errorf("denied %v of %v\n%s", denied, sent, p.File)
	}
	var text strings.Builder
	if err := p.Text(&text, "stint.yaml"); err != nil || !strings.Contains(text.String(), "api by user, free") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// What strangers send takes no tiers away, nor what identifies clients: keys that they made
// up, requests without one, tiers of their own.
func TestProposeIdentitiesStand(t *testing.T) {
	log := func(plant func(i int) []string) string {
		var b strings.Builder
		line := func(i int, ip, key, plan string, status int) {
			fmt.Fprintf(&b, "%s,%s,%s,%s,/api/orders,%d\n", truthStart.Add(time.Duration(i)*time.Second).Format(time.RFC3339), ip, key, plan, status)
		}
		b.WriteString("time,ip,user,plan,path,status\n")
		for i := range 3600 {
			line(i, fmt.Sprintf("10.0.0.%d", i%30), fmt.Sprintf("free-%d", i%60), "free", 200)
			for range 3 {
				line(i, fmt.Sprintf("10.0.1.%d", i%30), fmt.Sprintf("pro-%d", i%30), "pro", 200)
			}
			for _, text := range plant(i) {
				b.WriteString(truthStart.Add(time.Duration(i)*time.Second).Format(time.RFC3339) + ",203.0.113.9," + text + "\n")
			}
		}
		return b.String()
	}
	once := func(text string) func(int) []string {
		return func(i int) []string { return []string{text}[:max(0, 1-i)] }
	}
	each := func(n int, text string, args func(i int) []any) func(int) []string {
		return func(i int) []string { return slices.Repeat([]string{fmt.Sprintf(text, args(i)...)}, n) }
	}
	none := func(int) []any { return nil }
	rulesOf := func(text string) string {
		p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(text), Margin: 0.2})
		if err != nil || p.File == "" {
			t.Fatalf("%v, %+v", err, p)
		}
		var kept []string
		for line := range strings.Lines(p.File) {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	want := rulesOf(log(func(int) []string { return nil }))
	if !strings.Contains(want, "tiers: {by: plan, default: 'free', plans: {'free': ") {
		t.Fatal(want)
	}
	for what, plant := range map[string]func(int) []string{
		"a key that is refused":          once("x,,/api/orders,401"),
		"a key that is answered":         once("x,,/api/orders,200"),
		"a tier":                         once("x,gold,/api/orders,200"),
		"a key with each request":        each(1, "x-%d,,/api/orders,200", func(i int) []any { return []any{i} }),
		"a flood of keys, refused":       each(30, "x-%d,,/api/orders,401", func(i int) []any { return []any{i % 40} }),
		"a flood without a key":          each(9, ",,/api/orders,200", none),
		"a flood without a key, refused": each(9, ",,/api/orders,401", none),
		"many tiers":                     each(1, "x-%d,tier-%d,/api/orders,200", func(i int) []any { return []any{i % 40, i % 40} }),
		"a key of changing tiers":        each(9, "x,%d,/api/orders,200", func(i int) []any { return []any{i % 2} }),
	} {
		if got := rulesOf(log(plant)); got != want {
			t.Errorf("%s changes the rules:\n%s\nwant\n%s", what, got, want)
		}
	}
}
