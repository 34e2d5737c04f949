package main_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A day's window is that of a zone in which midnight is far, lest it ends in the
// middle of a test.
var operateRules = strings.Replace(operateRulesUTC, "in UTC", "in "+farFromMidnight(), 1)

func farFromMidnight() string {
	if time.Now().UTC().Hour() == 23 {
		return "Asia/Tokyo"
	}
	return "UTC"
}

const operateRulesUTC = `
rules:
  - {name: orders, match: {path: "/**"}, key: [header.x-api-key], limits: ["5 per day fixed_window in UTC", "4 per hour sliding_log"]}
  - {name: shared, key: [], limits: ["1000/h"], shadow: true}
  - {name: user, key: [header.x-user], on_missing: skip, limits: ["10/m"]}
`

// A story is what stint inspect --json writes, as checks from outside read it.
type story struct {
	Denied           bool
	Refused, Verdict string
	Rules            []struct {
		Rule, Key, KeyHash string
		Denied             bool
		Where              []string
		Limits             []struct {
			Limit           string
			Used, Remaining int64
			Cost            int64
			Denied          bool
			RetryAfterMS    *int64 `json:"retry_after_ms"`
			Words           string
		}
		Override *struct {
			Limits  []string
			Block   bool
			Author  string
			Reason  string
			Expires time.Time
		}
		Denials *struct{ Count uint64 }
	}
	LeftOut []struct{ Rule string } `json:"left_out"`
}

func (p *running) inspect(args ...string) story {
	p.t.Helper()
	status, out, errs := p.stint(append([]string{"inspect", "--json"}, args...)...)
	if status != 0 {
		p.t.Fatalf("exit %d: %s", status, errs)
	}
	return decode[story](p.t, out)
}

// onStores runs a test for stint serve with a Redis, and for stint proxy with memory.
func onStores(t *testing.T, test func(t *testing.T, start func(args ...string) *running)) {
	onBoth(t, func(t *testing.T, start func(args ...string) *running) {
		if strings.HasSuffix(t.Name(), "/proxy") {
			test(t, start)
			return
		}
		redis := startRedis(t, "")
		test(t, func(args ...string) *running {
			return start(append([]string{"--store", "redis://" + redis.address}, args...)...)
		})
	})
}

// TestInspect asks about a client that is denied: which rule, what is used, when
// it passes again, how often it was denied. Asking charges nothing.
func TestInspect(t *testing.T) {
	onStores(t, func(t *testing.T, start func(...string) *running) {
		args := []string{"-c", writeFile(t, t.TempDir()+"/stint.yaml", operateRules)}
		p := start(args...)
		if n := p.requests("partner-1", 6); n != 4 {
			t.Fatalf("%d passed, want 4", n)
		}
		for range 3 {
			s := p.inspect("--header", "X-Api-Key=partner-1")
			if len(s.Rules) < 2 || len(s.LeftOut) != 1 {
				t.Fatalf("%+v", s)
			}
			r := s.Rules[0]
			if r.Rule != "orders" || r.Key != "partner-1" || !r.Denied || s.Denied || !slices.Equal(r.Where, []string{"path is /**"}) || len(r.Limits) != 2 {
				t.Fatalf("%+v", r)
			}
			day, hour := r.Limits[0], r.Limits[1]
			if day.Used != 4 || day.Remaining != 1 || day.Denied || *day.RetryAfterMS != 0 {
				t.Errorf("%+v", day)
			}
			if hour.Used != 4 || hour.Remaining != 0 || !hour.Denied || *hour.RetryAfterMS <= 3_500_000 || *hour.RetryAfterMS > 3_600_000 ||
				!strings.HasPrefix(hour.Words, "4 of 4 used, 0 left. Each counts for 1h;") {
				t.Errorf("%+v", hour)
			}
			if r.Denials == nil || r.Denials.Count != 2 {
				t.Errorf("denials %+v, want 2", r.Denials)
			}
		}
		if s := p.inspect("--attribute", "header.X-API-KEY=partner-1", "--path", "/"); !s.Denied {
			t.Errorf("%+v", s)
		}
		if s := p.inspect("--ip", "192.0.2.7"); s.Rules[0].Rule != "shared" || s.Denied {
			t.Errorf("%+v", s)
		}
		status, out, errs := p.stint("inspect", "--header", "X-Api-Key=partner-1")
		if status != 0 || !strings.Contains(out, "DENIED orders: may match, where path is /**\n    key partner-1, in logs ") ||
			!strings.Contains(out, "denied 2 times in the last 10 minutes") {
			t.Errorf("exit %d\n%s%s", status, out, errs)
		}
	})
}

// TestInspectSent asks about a request whose body is part of what it costs.
func TestInspectSent(t *testing.T) {
	rules := "rules: [{name: tokens, key: [], limits: [1000/h], cost: {attribute: body./n, sent: 4}}]"
	p := launch(t, "proxy", "proxy", "--admin", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "-c", writeFile(t, t.TempDir()+"/stint.yaml", rules))
	p.listening()
	if s := p.inspect("--attribute", "body./n=7", "--sent", "120"); len(s.Rules) != 1 || s.Rules[0].Limits[0].Cost != 37 {
		t.Errorf("%+v", s)
	}
}

// TestInspectRefuses asks what cannot be asked.
func TestInspectRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", writeFile(t, t.TempDir()+"/stint.yaml", operateRules+"  - {name: session, key: [cookie.session, query.action], on_missing: skip, limits: [10/m]}\n"))
		for _, c := range []struct {
			args   string
			status int
			want   string
		}{
			{"", 2, "--ip: missing: say who the client is, such as --ip 192.0.2.7 or --header X-Api-Key=partner-1"},
			{"--ip 192.0.2", 2, `--ip: "192.0.2" is no address`},
			{"--attribute ip", 2, `--attribute: "ip" is no address`},
			{"--header X-Api-Key", 2, `--header: "X-Api-Key" is no header`},
			{"--header =a", 2, `--header: "=a" is no header`},
			{"--header X-User=a --header x-user=b", 2, "--header: x-user twice"},
			{"--path /a%2fb", 1, "attributes.path: encoded slash or backslash"},
		} {
			status, out, errs := p.stint(append([]string{"inspect"}, strings.Fields(c.args)...)...)
			want := c.want
			if c.args == "--attribute ip" {
				want = `--attribute: "ip": write NAME=VALUE`
			}
			if status != c.status || !strings.Contains(errs, want) || out != "" {
				t.Errorf("%s: exit %d %s%s, want %d %s", c.args, status, out, errs, c.status, want)
			}
		}
		for _, body := range []string{"", "{}", `{"attributes":{}}`, `{"attributes":[]}`, `{"attributes":{"ip":7}}`, `{"attributes":{"ip":"192.0.2.7"},"sent":-1}`, `{"attributes":{"ip":"x"}}`, `{"attribute":{"ip":"192.0.2.7"}}`,
			`{"attributes":{"ip":"192.0.2.7"}} x`, `{"attributes":{"ip":"` + strings.Repeat("1", 70_000) + `"}}`} {
			status, answer := p.call(http.MethodPost, p.admin+"/v1/inspect", body, nil)
			if status < 400 || status >= 500 || !strings.Contains(answer, `"detail":"`) {
				t.Errorf("%.60q: %d %s", body, status, answer)
			}
		}
		// What stint proxy would refuse does not pass there.
		for asked, want := range map[string]string{
			"--path //x": "path", "--path /%7euser": "path", "--path /x": "",
			"--header X-Api_Key=a": "header.x-api-key", "--header X-User=a --header Connection=X-User": "header.x-user",
			`--header Cookie=session="a"`: "cookie.session", "--attribute cookie.Session=a": "cookie.session", "--attribute cookie.session=a,b": "cookie.session", "--header Cookie=session=a": "",
			"--path /x?action=a;b": "query.action", "--path /x?action=a&action=b": "query.action", "--attribute query.action[]=a": "query.action", "--attribute query.action=a&b": "",
			"--path /x --header X-Original-URL=/y": "path", "--path /x --header X-Original-URL=/x": "", "--host a --header X-Forwarded-Host=b": "", // which no rule looks at
		} {
			args := strings.Fields(asked)
			s := p.inspect(args...)
			_, out, _ := p.stint(append([]string{"inspect"}, args...)...)
			refused := "policy: " + want + " of the request: "
			if want == "" && s.Refused != "" || want != "" && (!strings.HasPrefix(s.Refused, refused) || !strings.HasPrefix(s.Verdict, "Refused with 400 by stint proxy, /auth and middleware: "+refused)) || !strings.HasPrefix(out, s.Verdict[:9]) {
				t.Errorf("%s: %q, %q", asked, s.Refused, s.Verdict)
			}
		}
		// A header is written in either form, whatever signs its value has.
		for text, key := range map[string]string{"X-Api-Key=a": "a", "X-Api-Key: a": "a", "X-Api-Key: YTpi=": "YTpi=", "X-Api-Key=a:b": "a:b", "x-api-key: a=b: c": "a=b: c"} {
			if s := p.inspect("--header", text); len(s.Rules) == 0 || s.Rules[0].Key != key {
				t.Errorf("%s: %+v, want key %s", text, s.Rules, key)
			}
		}
		// What clients make up is shown as it is, and what no request can have is refused.
		for _, key := range []string{"\x1b[31mred", "a\nb", "é"} {
			status, out, errs := p.stint("inspect", "--attribute", "header.x-api-key="+key)
			if status != 1 || !strings.Contains(errs, "attributes.header.x-api-key: ") || strings.Contains(out+errs, "\x1b") {
				t.Errorf("%q: exit %d, %q %q", key, status, out, errs)
			}
		}
		for _, key := range []string{strings.Repeat("k", 300), "~" + strings.Repeat("A", 32), "1:a1:b"} {
			s := p.inspect("--attribute", "header.x-api-key="+key)
			if len(s.Rules) == 0 || len(s.Rules[0].Key) == 0 {
				t.Errorf("%q: %+v", key, s)
			}
		}
		if status, answer := p.call(http.MethodPost, p.admin+"/v1/inspect", `{"attributes":{"ip":"192.0.2.7"}}`, map[string]string{"Sec-Fetch-Site": "cross-site"}); status != http.StatusForbidden {
			t.Errorf("from another origin: %d %s", status, answer)
		}
	})
}

// TestOverrideFile raises a limit for a while, blocks and undoes, with a plain
// file: the client feels it at once, the acts survive a kill, and the audit says
// what was done.
func TestOverrideFile(t *testing.T) {
	onStores(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		args := []string{"-c", writeFile(t, dir+"/stint.yaml", operateRules)}
		p := start(args...)
		do := func(want string, args ...string) {
			t.Helper()
			status, out, errs := p.stint(args...)
			if status != 0 || !strings.Contains(out, want) {
				t.Fatalf("stint %s: exit %d\n%s%s\nwant %s", strings.Join(args, " "), status, out, errs, want)
			}
		}
		if n := p.requests("partner-1", 6); n != 4 {
			t.Fatalf("%d passed, want 4", n)
		}
		do("orders partner-1: 100/h until ", "override", "set", "orders", "partner-1", "100/h", "--for", "1h", "--reason", "a launch")
		if n := p.requests("partner-1", 10); n != 10 {
			t.Errorf("with an override %d of 10 passed", n)
		}
		if s := p.inspect("--header", "x-api-key=partner-1"); s.Rules[0].Override == nil || s.Rules[0].Override.Author != "this machine" || s.Rules[0].Override.Reason != "a launch" || s.Rules[0].Limits[0].Limit != "100/1h" {
			t.Errorf("%+v", s.Rules[0])
		}
		_ = p.end(syscall.SIGKILL)
		p = start(args...)
		if n := p.requests("partner-1", 10); n != 10 {
			t.Errorf("after a kill %d of 10 passed", n)
		}
		do("blocked", "block", "partner-2", "--rule", "orders", "--for", "24h")
		if n := p.requests("partner-2", 3); n != 0 {
			t.Errorf("blocked, and %d passed", n)
		}
		do(`act 2 is taken back: orders partner-2: the rule's own limits hold again`, "audit", "undo")
		if n := p.requests("partner-2", 3); n != 3 {
			t.Errorf("not blocked any more, and %d of 3 passed", n)
		}
		do(`act 1 is taken back`, "audit", "undo", "1")
		do("orders partner-1: as if never used", "reset", "orders", "partner-1")
		if n := p.requests("partner-1", 5); n != 4 {
			t.Errorf("after a reset %d passed, want 4", n)
		}
		do("orders partner-1: up to 1 units given back", "reset", "orders", "partner-1", "--cost", "1")
		if n := p.requests("partner-1", 3); n != 1 {
			t.Errorf("after a refund %d passed, want 1", n)
		}
		status, out, errs := p.stint("audit", "--json")
		if status != 0 {
			t.Fatal(errs)
		}
		var acts []string
		for _, a := range decode[[]struct{ Act, Subject, Author string }](t, out) {
			acts = append(acts, a.Act+" "+a.Subject)
			if a.Author != "this machine" {
				t.Errorf("%+v", a)
			}
		}
		slices.Reverse(acts)
		want := []string{`override set orders "partner-1"`, `override set orders "partner-2"`, `override remove orders "partner-2"`,
			`override remove orders "partner-1"`, `reset orders "partner-1"`, `refund orders "partner-1"`}
		if !slices.Equal(acts, want) {
			t.Errorf("the audit has %q, want %q", acts, want)
		}
		for customer, want := range map[string]string{
			"partner-1": `refund orders "partner-1": up to 1 units given back, gave back 1 of orders/`,
			"nobody":    `refund orders "nobody": up to 1 units given back, nothing was in use`,
		} {
			do("up to 1 units given back", "reset", "orders", customer, "--cost", "1")
			if _, out, _ := p.stint("audit", "-n", "1"); !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("%s; want %s", out, want)
			}
		}
	})
}

// TestOverrideUnkept has a state file that cannot be written: the log says so at the
// start, and whoever acts is told what was done and what to change.
func TestOverrideUnkept(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("there is no directory here in which root cannot write either")
	}
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", writeFile(t, t.TempDir()+"/stint.yaml", operateRules), "--state", "/proc/acts")
		p.waitFor("operators can change nothing: the state file cannot be written")
		for _, one := range []struct {
			want string
			args []string
		}{
			{"nothing has changed: the server's state file cannot be written", []string{"override", "set", "orders", "partner-1", "100/h", "--for", "1h"}},
			{"nothing has changed: the server's state file cannot be written", []string{"reset", "orders", "partner-1"}},
		} {
			if n := p.requests("partner-1", 6); n > 4 {
				t.Errorf("%d passed, want at most 4", n)
			}
			if status, _, errs := p.stint(one.args...); status != 1 || !strings.Contains(errs, one.want) {
				t.Errorf("stint %s: exit %d %s", strings.Join(one.args, " "), status, errs)
			}
		}
		if n := p.requests("partner-1", 6); n != 0 {
			t.Errorf("after a reset that was refused %d passed", n)
		}
	})
}

// TestUndoUnkept has a state file that can be written no more when a reset is undone:
// nothing is charged again, and whoever acts is told so.
func TestUndoUnkept(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		state := t.TempDir() + "/acts"
		p := start("-c", writeFile(t, t.TempDir()+"/stint.yaml", operateRules), "--state", state)
		if n := p.requests("partner-1", 6); n != 4 {
			t.Fatalf("%d passed, want 4", n)
		}
		if status, _, errs := p.stint("reset", "orders", "partner-1"); status != 0 {
			t.Fatal(errs)
		}
		if err := os.MkdirAll(state+".new/full", 0o700); err != nil { // in the place of the file that is written first
			t.Fatal(err)
		}
		if status, _, errs := p.stint("audit", "undo"); status != 1 || !strings.Contains(errs, "nothing has changed: the server's state file cannot be written") {
			t.Errorf("exit %d %s", status, errs)
		}
		if n := p.requests("partner-1", 6); n != 4 {
			t.Errorf("%d passed, want 4: an undo that was refused is done", n)
		}
	})
}
