package main_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
)

// A board is what stint top --json writes, as checks from outside read it.
type board struct {
	Rules []struct {
		Rule            string
		Allowed, Denied uint64
	}
	Denied []struct {
		Rule, Key string
		KeyHash   string `json:"key_hash"`
		Count     uint64
	}
	Nearest []struct {
		Rule, Key, Limit string
		Used, Of         int64
		Part             float64
	}
	Stores []struct{ Store string }
}

func (p *running) top(args ...string) board {
	p.t.Helper()
	status, out, errs := p.stint(append([]string{"top", "--json"}, args...)...)
	if status != 0 {
		p.t.Fatalf("exit %d: %s", status, errs)
	}
	return decode[board](p.t, out)
}

// TestTop denies some keys more and others less, and brings one near its limit.
func TestTop(t *testing.T) {
	onStores(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", disk.Write(t, t.TempDir()+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["10 per day"]}]`))
		if b := p.top(); len(b.Rules) != 1 || len(b.Denied)+len(b.Nearest) != 0 {
			t.Errorf("before any request: %+v", b)
		}
		p.requests("much", 17)
		p.requests("little", 12)
		p.requests("near", 9)
		p.requests("far", 3)
		b := p.top()
		if len(b.Rules) != 1 || b.Rules[0].Rule != "orders" || b.Rules[0].Allowed != 32 || b.Rules[0].Denied != 9 {
			t.Errorf("rules %+v", b.Rules)
		}
		var denied, near []string
		for _, d := range b.Denied {
			denied = append(denied, fmt.Sprint(d.Rule, " ", d.Key, " ", d.Count))
		}
		if want := []string{"orders much 7", "orders little 2"}; !slices.Equal(denied, want) {
			t.Errorf("denied %q, want %q", denied, want)
		}
		for _, d := range b.Nearest {
			near = append(near, fmt.Sprint(d.Key, " ", d.Used, " of ", d.Of))
		}
		slices.Sort(near)
		if want := []string{"little 10 of 10", "much 10 of 10", "near 9 of 10"}; !slices.Equal(near, want) {
			t.Errorf("nearest %q, want %q", near, want)
		}
		if len(b.Stores) == 0 || b.Stores[len(b.Stores)-1].Store != "memory" {
			t.Errorf("stores %+v", b.Stores)
		}
		status, out, errs := p.stint("top")
		if status != 0 || !strings.Contains(out, "\norders ") || !strings.Contains(out, "much") {
			t.Errorf("exit %d\n%s%s", status, out, errs)
		}
		p.stint("block", "far", "--rule", "orders", "--reason", "abuse")
		status, out, errs = p.stint("block", "list", "--json")
		var keys []string
		for _, one := range decode[[]struct{ Key, Why string }](t, out) {
			keys = append(keys, one.Key+" "+one.Why)
		}
		if want := []string{"little denied", "much denied", "far block"}; status != 0 || !slices.Equal(keys, want) {
			t.Errorf("exit %d %s: blocked %q, want %q", status, errs, keys, want)
		}
		// Who passes again is not in the list, whatever is known of denials.
		for _, line := range []string{"override set orders much 100/h", "reset orders little", "block end far --rule orders"} {
			if status, out, errs := p.stint(strings.Fields(line)...); status != 0 {
				t.Errorf("%s: exit %d %s%s", line, status, out, errs)
			}
		}
		if status, out, errs := p.stint("block", "list", "--json"); status != 0 || strings.Contains(out, "key") {
			t.Errorf("exit %d %s: blocked %s, want nobody", status, errs, out)
		}
	})
}

// TestTopUsed asks who has used most, who need not be nearest to a limit: one is above it, by
// what its reservation was settled at, and has a key that CSV quotes.
func TestTopUsed(t *testing.T) {
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", `rules:
  - {name: orders, match: {path: /orders}, key: [header.x-api-key], limits: ["3 per day in UTC"]}
  - {name: tokens, match: {path: /chat}, key: [header.x-api-key], limits: ["1000 per day in UTC"]}`))
	for _, one := range []struct {
		path, key string
		cost      int
	}{{"/orders", "little", 3}, {"/chat", `acme, "north"`, 1300}, {"/chat", "other", 950}} {
		_, said := p.call(http.MethodPost, p.front+"/v1/reserve", fmt.Sprintf(`{"attributes":{"path":%q,"header.x-api-key":%q},"cost":1}`, one.path, one.key), nil)
		body := fmt.Sprintf(`{"reservation":%q,"cost":%d}`, decode[struct{ Reservation string }](t, said).Reservation, one.cost)
		if status, answer := p.call(http.MethodPost, p.front+"/v1/settle", body, nil); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	if near := p.top("-n", "2").Nearest; len(near) != 2 || near[0].Used != 1300 || near[1].Used != 3 {
		t.Errorf("nearest: %+v", near)
	}
	const head, at = "rule,key,limit,used,of,at\n", `,20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\n`
	want := regexp.QuoteMeta(head+`tokens,"acme, ""north""",1000/day in UTC,1300,1000`) + at + regexp.QuoteMeta(`tokens,other,1000/day in UTC,950,1000`) + at
	status, out, errs := p.stint("top", "--by", "used", "--csv", "-n", "2")
	if status != 0 || !regexp.MustCompile("^"+want+"$").MatchString(out) {
		t.Errorf("exit %d %s\n%s\nwant %s", status, errs, out, want)
	}
}

// TestTopShadow tries a rule in shadow: who reads the text sees whom it would deny, and
// that it denies nobody.
func TestTopShadow(t *testing.T) {
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", `rules:
  - {name: orders, key: [header.x-api-key], limits: ["9 per day"]}
  - {name: trial, key: [header.x-api-key], limits: ["1 per week"], shadow: true}
  - {name: everyone, key: [], limits: ["4 per day"]}`))
	if n := p.requests("a", 4); n != 4 {
		t.Errorf("%d of 4 passed", n)
	}
	for command, want := range map[string][]string{
		"top":     {`(?m)^orders .* 0 +4$`, `(?m)^trial .* 0 +1  in shadow: 3 would be denied$`, `(?m)^trial +a +3 +\S+  in shadow$`, `(?m)^everyone +\(one key for all\) +100%`},
		"inspect": {`would be denied \(shadow\) trial`, `(?m)^    would have been denied 3 times`},
	} {
		args := map[string][]string{"top": {"top", "--once"}, "inspect": {"inspect", "--header", "x-api-key=a"}}[command]
		_, out, errs := p.stint(args...)
		for _, one := range want {
			if !regexp.MustCompile(one).MatchString(out) {
				t.Errorf("stint %s has no %s:\n%s%s", command, one, out, errs)
			}
		}
	}
}

// TestTopFlood denies more keys than are remembered: the one that is denied most
// is there, and pages of who is blocked come to an end.
func TestTopFlood(t *testing.T) {
	p := operated(t, "--max-batch", "1000", "-c", disk.Write(t, t.TempDir()+"/stint.yaml", `rules: [{name: none, key: [header.x-api-key], limits: ["1 per day"]}]`))
	for i := range 40 {
		var batch []string
		for k := range 100 {
			once := fmt.Sprintf(`{"attributes":{"header.x-api-key":"made-up-%d"}}`, i*100+k)
			batch = append(batch, once, once, `{"attributes":{"header.x-api-key":"stubborn"}}`)
		}
		body := `{"requests":[` + strings.Join(batch, ",") + `]}`
		if status, answer := p.call(http.MethodPost, p.front+"/v1/check", body, nil); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	b := p.top("-n", "1000")
	if b.Denied[0].Key != "stubborn" || b.Denied[0].Count < 3999 {
		t.Errorf("%+v", b.Denied[0])
	}
	if len(b.Denied) > 1000 || len(b.Nearest) > 1000 {
		t.Errorf("%d denied, %d near", len(b.Denied), len(b.Nearest))
	}
	status, out, errs := p.stint("block", "list", "--json")
	if n := strings.Count(out, `"rule"`); status != 0 || n < 500 || n > 1024 {
		t.Errorf("exit %d %s: %d are blocked", status, errs, n)
	}
}
