package main_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
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
		p := start("-c", writeFile(t, t.TempDir()+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["10 per day"]}]`))
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
	p := operated(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", `rules:
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
	p := operated(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", `rules:
  - {name: orders, key: [header.x-api-key], limits: ["9 per day"]}
  - {name: trial, key: [header.x-api-key], limits: ["1 per week"], shadow: true}`))
	if n := p.requests("a", 4); n != 4 {
		t.Errorf("%d of 4 passed", n)
	}
	for command, want := range map[string][]string{
		"top":     {`(?m)^orders .* 0 +4$`, `(?m)^trial .* 0 +1  in shadow: 3 would be denied$`, `(?m)^trial +a +3 +\S+  in shadow$`},
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
	p := serveFlood(t)
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

// serveFlood starts a server under whose rule each key passes once.
func serveFlood(t *testing.T) *running {
	p := operated(t, "--max-batch", "1000", "-c",
		writeFile(t, t.TempDir()+"/stint.yaml", `rules: [{name: none, key: [header.x-api-key], limits: ["1 per day"]}]`))
	return p
}

// TestState starts with what is no state file, with half of one, and kills the
// process in the middle of many acts: each that was answered is there.
func TestState(t *testing.T) {
	dir := t.TempDir()
	rules := writeFile(t, dir+"/stint.yaml", operateRules)
	begin := func() *running {
		p := operated(t, "-c", rules)
		return p
	}
	p := begin()
	answered := make(map[string]bool)
	unanswered := 0 // of those that reached it: they may be there
	for i := range 40 {
		if i == 30 {
			go func() { _ = p.process.Process.Signal(syscall.SIGKILL) }()
		}
		key := fmt.Sprintf("key-%d", i)
		status, _, errs := p.stint("block", key, "--rule", "orders")
		switch {
		case status == 0:
			answered[key] = true
		case !strings.Contains(errs, "refused"):
			unanswered++
		}
	}
	<-p.ended
	p = begin()
	_, out, _ := p.stint("override", "list", "--json")
	if n := strings.Count(out, `"rule"`); n > len(answered)+unanswered || len(answered) == 0 {
		t.Errorf("%d acts were answered and %d not, %d are there", len(answered), unanswered, n)
	}
	for key := range answered {
		if !strings.Contains(out, fmt.Sprintf("%q", key)) {
			t.Errorf("%s was answered, and is not there", key)
		}
	}
	_ = p.end(syscall.SIGTERM)
	good, err := os.ReadFile(rules + ".state")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(rules + ".state"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	for name, text := range map[string]string{"empty": "", "half": string(good[:len(good)/2]), "other": "{}", "changed": strings.Replace(string(good), "key", "kex", 1) + " "} {
		writeFile(t, rules+".state", text)
		p := launch(t, "serve", "serve", "-c", rules, "--http", "127.0.0.1:0")
		if err := <-p.ended; err == nil || !strings.Contains(p.log(), "--state: "+rules+".state: unusable state: ") {
			t.Errorf("%s: %v %s", name, err, p.log())
		}
		if now, _ := os.ReadFile(rules + ".state"); string(now) != text {
			t.Errorf("%s: the file has changed", name)
		}
	}
}

// TestUndo takes back a reset, a refund, and an override that took the place of
// another; what is not in force any more stays.
func TestUndo(t *testing.T) {
	onStores(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		p := start("-c", writeFile(t, dir+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["4 per day fixed_window"]}]`))
		do := func(status int, want string, args ...string) {
			t.Helper()
			got, out, errs := p.stint(args...)
			if got != status || !strings.Contains(out+errs, want) {
				t.Fatalf("stint %s: exit %d\n%s%s\nwant %d %s", strings.Join(args, " "), got, out, errs, status, want)
			}
		}
		left := func(want int64) {
			t.Helper()
			if s := p.inspect("--header", "x-api-key=a"); s.Rules[0].Limits[0].Remaining != want {
				t.Errorf("%d are left, want %d", s.Rules[0].Limits[0].Remaining, want)
			}
		}
		do(1, "there is no act of yours to take back", "audit", "undo")
		p.requests("a", 3)
		left(1)
		do(0, "as if never used", "reset", "orders", "a")
		left(4)
		do(0, "act 1 is taken back: orders a: charged again: 3 of orders", "audit", "undo")
		left(1)
		do(0, "up to 2 units given back", "reset", "orders", "a", "--cost", "2")
		left(3)
		do(0, "charged again: 2 of orders", "audit", "undo")
		left(1)
		do(0, "9/h", "override", "set", "orders", "a", "9/h")
		do(0, "blocked, before 9/h", "block", "a", "--rule", "orders")
		do(1, "act 5 is not what holds any more", "audit", "undo", "5")
		do(0, "act 6 is taken back: orders a: as before: 9/h", "audit", "undo")
		do(1, "Your last act, 7, is an undo of act 6: name the act by its number", "audit", "undo")
		do(0, "act 5 is taken back: orders a: the rule's own limits hold again", "audit", "undo", "5")
		do(1, "has been taken back already", "audit", "undo", "6")
		do(1, "is not among the last", "audit", "undo", "99")
	})
}
