package main_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
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
		args := []string{"-c", disk.Write(t, t.TempDir()+"/stint.yaml", operateRules)}
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

// TestInspectOpen asks with conditions left open: the first line says how the client stands, and
// which rules decide.
func TestInspectOpen(t *testing.T) {
	const rules = `rules:
  - {name: closed, match: {path: "/**"}, unless: {path: [/a, /b]}, block: true}
  - {name: orders, match: {path: /a}, key: [header.x-api-key], limits: [1/h]}
  - {name: address, match: {method: POST}, key: [ip], limits: [9/h]}
`
	p := startStint(t, "proxy", "--admin", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "-c", disk.Write(t, t.TempDir()+"/stint.yaml", rules))
	p.call(http.MethodGet, p.front+"/a", "", map[string]string{"X-Api-Key": "used"})
	for asked, want := range map[string]string{
		"--method GET --header X-Api-Key=new":   "Passes, except where rule closed matches.\nmay be DENIED closed: may match, where path is /** and not (path is /a, /b)\n",
		"--header X-Api-Key=new":                "Passes as far as is known, except where rule closed matches. Not given is ip, which rule address looks at.\n",
		"--header X-Api-Key=used":               "Denied where rule orders or closed matches.\n",
		"--header X-Api-Key=used --path /a":     "Denied now by rule orders.\n",
		"--header X-Api-Key=new --path /old":    "Denied now by rule closed.\nDENIED closed: path is /**\n",
		"--ip 192.0.2.7 --method GET --path /b": "No rule holds for this client: it passes.\n",
	} {
		status, out, errs := p.stint(append([]string{"inspect"}, strings.Fields(asked)...)...)
		// The rule that ends the matching is said to do so only where it matches for certain.
		ends := strings.Contains(out, "\n    no rule after it is tried\n")
		if out = strings.ReplaceAll(out, "\n      ", " "); status != 0 || !strings.HasPrefix(out, want) || ends != strings.Contains(out, "\nDENIED closed") {
			t.Errorf("%s: exit %d\n%s%s, want %s", asked, status, out, errs, want)
		}
	}
}

// TestInspectWithoutStore: while the store is away, one rule that is closed hides nothing of the others.
func TestInspectWithoutStore(t *testing.T) {
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", `store: redis://127.0.0.1:1
rules:
  - {name: login, match: {path: /login}, key: [header.x-api-key], limits: 5/m, on_store_failure: closed}
  - {name: site, key: [header.x-api-key], limits: 2/h}
`))
	if n := p.requests("a", 4); n != 2 {
		t.Errorf("%d passed, want 2", n)
	}
	_, out, errs := p.stint("inspect", "--header", "X-Api-Key=a")
	for _, want := range []string{"Denied now by rule site.\n", "may be DENIED login: ", "DENIED site: ", "decides by its share. 2 of 2 used"} {
		if out := strings.ReplaceAll(out, "\n      ", " "); !strings.Contains(out, want) {
			t.Errorf("want %q:\n%s%s", want, out, errs)
		}
	}
}

// TestIdleOverrides blocks where that does nothing: it is refused. Where a rule has become so, or is in
// shadow, lists say so.
func TestIdleOverrides(t *testing.T) {
	file := disk.Write(t, t.TempDir()+"/stint.yaml", `rules:
  - {name: tried, key: [header.x-api-key], limits: 9/h, shadow: true}
  - {name: api, key: [header.x-api-key], limits: 9/h}
`)
	p := operated(t, "-c", file)
	says := func(line string, status int, want string) {
		t.Helper()
		got, out, errs := p.stint(strings.Fields(line)...)
		if text := strings.Join(strings.Fields(out+errs), " "); got != status || !strings.Contains(text, want) {
			t.Errorf("%s: exit %d\n%s\nwant %q", line, got, text, want)
		}
	}
	says("block a --rule tried", 0, "tried a: blocked It denies nobody: the rule is in shadow.")
	says("block a --rule api", 0, "api a: blocked")
	disk.Write(t, file, `rules:
  - {name: tried, key: [header.x-api-key], limits: 9/h, shadow: true}
  - {name: api, key: [header.x-api-key], unlimited: true}
`)
	p.waitFor("rules: reloaded")
	says("block b --rule api", 2, "api has no limits, so a block under it would do nothing: name another rule")
	says("override set api b 5/m", 2, "api has no limits, so an override under it would do nothing")
	says("block list", 0, `api a: block by "this machine", but it does nothing: the rule has no limits tried a: block by "this machine", but it denies nobody: the rule is in shadow`)
	says("override list", 0, "api a: blocked, but it does nothing: the rule has no limits")
	says("override get tried a", 0, "tried a: blocked, but it denies nobody: the rule is in shadow")
	says("inspect --header X-Api-Key=a", 0, "passes api: matches every request")
	says("inspect --header X-Api-Key=a", 0, "but it does nothing: the rule has no limits")
	says("block end a --rule api", 0, "the rule's own limits")
}

// TestRefusedFile: operators see that the rules file as it is now is not in force, and why.
func TestRefusedFile(t *testing.T) {
	file := disk.Write(t, t.TempDir()+"/stint.yaml", operateRules)
	p := operated(t, "-c", file)
	disk.Write(t, file, "rules: [{name: a, key: [ip], limit: 5/m}]\n")
	p.waitFor("not reloaded")
	for _, line := range []string{"top", "top --json", "inspect --ip 192.0.2.7", "rules nodes"} {
		_, out, errs := p.stint(strings.Fields(line)...)
		if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, "not reloaded, the rules before stay in force: "+file) || !strings.Contains(text, "limit") {
			t.Errorf("%s:\n%s%s", line, out, errs)
		}
	}
	disk.Write(t, file, operateRules)
	p.waitFor("again what is in force")
	if _, out, errs := p.stint("top"); strings.Contains(out, "not reloaded") {
		t.Errorf("%s%s", out, errs)
	}
}

// TestInspectSent asks about a request whose body is part of what it costs.
func TestInspectSent(t *testing.T) {
	rules := "rules: [{name: tokens, key: [], limits: [1000/h], cost: {attribute: body./n, sent: 4}}]"
	p := startStint(t, "proxy", "--admin", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "-c", disk.Write(t, t.TempDir()+"/stint.yaml", rules))
	if s := p.inspect("--attribute", "body./n=7", "--sent", "120"); len(s.Rules) != 1 || s.Rules[0].Limits[0].Cost != 37 {
		t.Errorf("%+v", s)
	}
}

// TestInspectRefuses asks what cannot be asked.
func TestInspectRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", disk.Write(t, t.TempDir()+"/stint.yaml", operateRules+"  - {name: session, key: [cookie.session, query.action], on_missing: skip, limits: [10/m]}\n"))
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
			{"--attribute Ip=192.0.2.7", 1, `attributes.Ip: unknown attribute "Ip"; did you mean ip?`},
			{"--path /a%2fb", 1, "attributes.path: an encoded slash or backslash (%2F, %5C), which not all servers take for a plain one: write a slash"},
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
		// What a server would refuse does not pass there.
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
			refused, by := "policy: "+want+" of the request: ", "stint proxy, /auth and middleware: "
			if asked == "--path //x" || asked == "--path /%7euser" { // which the proxy sends on as /x and /~user
				by = "/auth and middleware: "
			}
			if want == "" && s.Refused != "" || want != "" && (!strings.HasPrefix(s.Refused, refused) || !strings.HasPrefix(s.Verdict, "Refused with 400 by "+by+refused)) || !strings.HasPrefix(out, s.Verdict[:9]) {
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

// TestNeverPasses lists who can never pass: whom a rule blocks, and whose request
// costs more than a limit holds. A block that an operator gave is listed once.
func TestNeverPasses(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", disk.Write(t, t.TempDir()+"/stint.yaml", `rules:
  - name: banned
    match: {header.x-api-key: banned}
    block: true
  - name: orders
    key: [header.x-api-key]
    limits: [5 per hour]
    cost: {header: x-cost, default: 1}
`))
		if status, _, errs := p.stint("block", "far", "--rule", "orders", "--reason", "abuse"); status != 0 {
			t.Fatal(errs)
		}
		for client, cost := range map[string]string{"banned": "1", "large": "9", "far": "1", "fine": "1"} {
			if p.name == "proxy" {
				p.call(http.MethodGet, p.front+"/", "", map[string]string{"X-Api-Key": client, "X-Cost": cost})
			} else {
				p.call(http.MethodPost, p.front+"/v1/check", fmt.Sprintf(`{"attributes":{"method":"GET","path":"/","header.x-api-key":%q,"header.x-cost":%q}}`, client, cost), nil)
			}
		}
		_, out, errs := p.stint("block", "list", "--json")
		var all []string
		for _, b := range decode[[]struct {
			Rule, Key, Why string
			Until          *time.Time
		}](t, out) {
			all = append(all, fmt.Sprint(b.Rule, " ", b.Key, " ", b.Why, " ", b.Until == nil))
		}
		if want := []string{"banned  never true", "orders large never true", "orders far block true"}; !slices.Equal(all, want) {
			t.Errorf("%q, want %q %s", all, want, errs)
		}
		if _, out, _ := p.stint("block", "list"); !strings.Contains(out, "orders large: can never pass") {
			t.Errorf("as text:\n%s", out)
		}
	})
}

// TestBans has a limit ban two clients, and operators see and end it: a ban is no block, and
// what an operator gave a key stays when its ban ends.
func TestBans(t *testing.T) {
	onStores(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", disk.Write(t, t.TempDir()+"/stint.yaml", `rules: [{name: login, key: [header.x-api-key], limits: ["3/1h ban 24h", "50 per day fixed_window"]}]`))
		says := func(line, want string) {
			t.Helper()
			if status, out, errs := p.stint(strings.Fields(line)...); status != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: exit %d\n%s%s\nwant %q", line, status, out, errs, want)
			}
		}
		blocked := func(want ...string) {
			t.Helper()
			status, out, errs := p.stint("block", "list", "--json")
			var keys []string
			for _, one := range decode[[]struct{ Key, Why string }](t, out) {
				keys = append(keys, one.Key+" "+one.Why)
			}
			if status != 0 || !slices.Equal(keys, want) {
				t.Errorf("exit %d %s: %q, want %q", status, errs, keys, want)
			}
		}
		p.requests("anna", 3)
		p.requests("mallory", 5)
		p.requests("trudy", 4)
		blocked("mallory ban", "trudy ban")
		says("block list", "mallory: banned until ")
		says("inspect --header X-Api-Key=mallory", "DENIED login: ")
		says("inspect --header X-Api-Key=mallory", "Banned: everything is denied for")
		says("inspect --header X-Api-Key=anna", "3 of 3 used")
		says("block end mallory --rule login", "its ban has ended")
		says("inspect --header X-Api-Key=mallory", "3/1h ban 24h: 0 of 3 used")
		says("inspect --header X-Api-Key=mallory", "50/24h fixed_window: 3 of 50 used")
		says("reset login trudy", "as if never used")
		blocked()
		if status, out, errs := p.stint("block", "end", "anna", "--rule", "login"); status != 1 || !strings.Contains(errs, "not found") {
			t.Errorf("who is not banned: exit %d %s%s", status, out, errs)
		}
		p.requests("mallory", 3)
		says("inspect --header X-Api-Key=mallory", "3 of 3 used")
		if status, out, errs := p.stint("override", "set", "login", "mallory", "2/1h ban 48h"); status != 0 {
			t.Errorf("an override: exit %d %s%s", status, out, errs)
		}
		p.requests("mallory", 1)
		blocked("mallory ban")
		says("block end mallory --rule login", "its ban has ended")
		says("override get login mallory", "2/1h ban 48h")
		p.requests("mallory", 3)
		says("override set login mallory 100/1h", "100/1h")
		p.requests("mallory", 1)
		says("override remove login mallory", "the rule's own limits")
		blocked("mallory ban") // it goes on
		says("block end mallory --rule login", "its ban has ended")
		p.requests("trudy", 4)
		says("block trudy --rule login", "blocked")
		says("inspect --header X-Api-Key=trudy", "denied by a block")
		says("block end trudy --rule login", "its ban has ended")
		blocked()
	})
}
