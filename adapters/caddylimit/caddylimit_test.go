package caddylimit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	"github.com/stint-dev/stint/adapters/caddylimit"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// A server is Caddy itself in this process, on a Unix socket that it trusts as a
// proxy. There is one at a time.
type server struct {
	testing.TB
	dir, socket string
	loaded      int
	client      *http.Client
}

// start runs a site.
func start(t testing.TB, site string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "caddy") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	s := &server{TB: t, dir: dir}
	s.client = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.socket)
		},
	}}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir) // of the machine's temporary files
	})
	if err := s.load(site); err != nil {
		t.Fatal(err)
	}
	return s
}

// load has Caddy take another site, as "caddy reload" does.
func (s *server) load(site string) error {
	s.loaded++
	socket := filepath.Join(s.dir, strconv.Itoa(s.loaded)) // not the one whose server is about to end
	config, err := adapt("{\nadmin off\npersist_config off\nlog {\noutput discard\n}\nservers {\ntrusted_proxies static 127.0.0.1/32\ntrusted_proxies_unix\n}\n}\n" +
		"http:// {\nbind unix/" + socket + "\n" + site + "\n}\n")
	if err != nil {
		return err
	}
	if err := caddy.Load(config, true); err != nil {
		return err
	}
	s.socket = socket
	s.client.CloseIdleConnections()
	return nil
}

func adapt(text string) ([]byte, error) {
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			return nil, fmt.Errorf("%v", w)
		}
	}
	return config, err
}

// ask sends a request from an address, with header fields in pairs.
func (s *server) ask(address, path string, header ...string) (status int, h http.Header, body string) {
	s.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://caddy"+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", address)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(text)
}

// statuses asks one after another, an address or "address path" each.
func (s *server) statuses(asked ...string) string {
	s.Helper()
	var said []string
	for _, one := range asked {
		address, rest, _ := strings.Cut(one, " ")
		fields := strings.Fields(rest)
		path := "/"
		if len(fields) > 0 {
			path, fields = fields[0], fields[1:]
		}
		status, _, _ := s.ask(address, path, fields...)
		said = append(said, fmt.Sprint(status))
	}
	return strings.Join(said, " ")
}

func (s *server) want(want string, asked ...string) {
	s.Helper()
	if got := s.statuses(asked...); got != want {
		s.Errorf("%v: %s, want %s", asked, got, want)
	}
}

// TestLimits holds addresses to a limit, and IPv6 by /64; what is denied reaches
// nothing behind.
func TestLimits(t *testing.T) {
	s := start(t, "stint site 2/h\nrespond hello")
	s.want("200 200 429 200", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2")
	s.want("200 200 429 200", "2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1")
	status, h, body := s.ask("192.0.2.1", "/")
	if status != 429 || h.Get("Retry-After") == "" || h.Get("RateLimit") == "" || strings.Contains(body, "hello") {
		t.Errorf("%d %v %q", status, h, body)
	}
	if status, h, body := s.ask("192.0.2.3", "/"); status != 200 || h.Get("RateLimit") != `"site";r=1;t=1800` || body != "hello" {
		t.Errorf("%d %v %q", status, h, body)
	}
}

// TestKeys counts by placeholders: no value of one part meets another's.
func TestKeys(t *testing.T) {
	s := start(t, "stint keys 1/h {\nkey {header.A} {header.B}\n}\nrespond hello")
	s.want("200 429 200 200", "192.0.2.1 / A x B y", "192.0.2.2 / A x B y", "192.0.2.1 / A xy B z", "192.0.2.1 / A x B yz")
	for missing, want := range map[string]string{"shared": "200 429", "deny": "403 403", "skip": "200 200"} {
		if err := s.load("stint " + missing + " 1/h {\nkey {header.A}\non_missing " + missing + "\n}\nrespond hello"); err != nil {
			t.Fatal(err)
		}
		s.want(want, "192.0.2.1", "192.0.2.2")
	}
	if err := s.load("stint together 3/h {\nkey {client_ip} {path}\nlimit 1/m\n}\nrespond hello"); err != nil {
		t.Fatal(err)
	}
	s.want("200 429 200 200", "192.0.2.1 /a", "192.0.2.1 /a", "192.0.2.1 /b", "192.0.2.2 /a")
	if err := s.load("stint seen 1/h {\nshadow\n}\nrespond hello"); err != nil {
		t.Fatal(err)
	}
	s.want("200 200", "192.0.2.1", "192.0.2.1")
}

const rules = `attributes: [http.vars.plan]
rules:
  - name: abuse
    match: {ip: 198.51.100.0/24}
    block: true
  - name: login
    match: {path: /login}
    key: [ip]
    limits: ["1/h"]
  - name: free
    match: {http.vars.plan: free}
    key: [header.x-user]
    limits: [2/h]
`

// TestRules goes by a rules file, with attributes that are Caddy's placeholders.
func TestRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stint.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(rules)
	site := "@free header X-Plan free\nvars @free plan free\nroute {\nstint site {\nrules " + file + "\n}\nrespond hello\n}"
	s := start(t, site)
	s.want("403 200 429 200 200", "198.51.100.7", "192.0.2.1 /login", "192.0.2.1 /login?x=1", "192.0.2.2 /login", "192.0.2.1")
	s.want("200 200 429 200", "192.0.2.1 / X-Plan free X-User a", "192.0.2.2 / X-Plan free X-User a", "192.0.2.3 / X-Plan free X-User a", "192.0.2.3 / X-User a")
	s.want("400", "192.0.2.1 /a%2flogin")
	write("denied: {status: 420}\ncors: true\n" + rules)
	if err := s.load(site); err != nil {
		t.Fatal(err)
	}
	s.want("420 420", "198.51.100.7", "192.0.2.1 /login")
	if _, h, _ := s.ask("198.51.100.7", "/", "Origin", "https://a.example"); h.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Errorf("%v", h)
	}
	write(rules)
	if err := s.load(site); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"rules:\n  - name: a\n    limit: [1/h]\n":  "3:5",
		"trusted_proxies: [10.0.0.1]\nrules: []\n": "1:1: trusted_proxies is not for Caddy",
		"rules: &a []\n":              "line 1: anchors",
		"rules: []\n---\nrules: []\n": "a second document",
		"":                            "empty",
	} {
		write(text)
		if err := s.load(site); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	s.want("429", "192.0.2.1 /login") // the configuration before stands
}

// TestResponse charges what responses say, and counts failures alone, also those that
// Caddy answers outside of the handler.
func TestResponse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(file, []byte(`rules:
  - {name: tokens, match: {path: /tokens}, key: [ip], limits: [10 per 10000h sliding_log], cost: {usage: openai, reserve: 4}}
  - {name: failures, key: [ip], limits: [2 per 10000h sliding_log], count: {status: [404, 502]}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "route {\nstint site {\nrules "+file+"\n}\nrespond /tokens `{\"usage\":{\"total_tokens\":7}}`\nrespond /bad 404\nreverse_proxy /dead 127.0.0.1:1\nrespond hello\n}")
	s.want("200 429", "192.0.2.1 /tokens", "192.0.2.1 /tokens") // 7 of 10, and 4 must be free
	s.want("200 200 200 404 200 404 429", "192.0.2.2", "192.0.2.2", "192.0.2.2", "192.0.2.2 /bad", "192.0.2.2", "192.0.2.2 /bad", "192.0.2.2")
	s.want("502 502 429", "192.0.2.3 /dead", "192.0.2.3 /dead", "192.0.2.3")
}

// TestReload keeps what clients have used, under other limits too, and under no
// other name.
func TestReload(t *testing.T) {
	s := start(t, "stint kept 2/h\nrespond hello")
	s.want("200 200 429", "192.0.2.1", "192.0.2.1", "192.0.2.1")
	for _, one := range []struct{ site, want string }{
		{"stint kept 2/h\nrespond bye", "429"},
		{"stint kept 3/h\nrespond bye", "200"}, // two thirds are used
		{"stint new 2/h\nrespond bye", "200"},
	} {
		if err := s.load(one.site); err != nil {
			t.Fatal(err)
		}
		s.want(one.want, "192.0.2.1")
	}
}

// TestStore shares limits through Redis: another Caddy finds what was used, and one
// whose Redis is gone still decides.
func TestStore(t *testing.T) {
	redis := redistest.Start(t)
	t.Setenv("REDIS", redis.URL())
	site := "stint shared 2/h {\nstore {$REDIS}\nnodes 1\n}\nrespond hello"
	s := start(t, site)
	s.want("200 200 429", "192.0.2.1", "192.0.2.1", "192.0.2.1")
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.load(site); err != nil {
		t.Fatal(err)
	}
	s.want("429 200", "192.0.2.1", "192.0.2.2")
	redis.Kill()
	s.want("200 200 429", "192.0.2.3", "192.0.2.3", "192.0.2.3")
}

// TestStoreCounted has two handlers and another process share a Redis: this one
// counts once, and holds half of each limit while Redis is gone, also under the
// configuration that came after the count.
func TestStoreCounted(t *testing.T) {
	redis := redistest.Start(t)
	other, err := redisstore.New(redisstore.Options{URL: redis.URL(), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.CountNodes(nil)
	handlers := fmt.Sprintf("stint one 2/d {\nstore %[1]s\n}\nstint two 100/d {\nstore %[1]s\n}\n", redis.URL())
	s := start(t, "route {\n"+handlers+"respond hello\n}")
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		opened, nodes := caddylimit.Counted()
		if opened == 1 && nodes == 2 {
			break
		}
		if opened != 1 || nodes > 2 || time.Now().After(until) {
			t.Fatalf("%d connections, %d processes: want 1 and 2", opened, nodes)
		}
	}
	if err := s.load("route {\n" + handlers + "respond bye\n}"); err != nil {
		t.Fatal(err)
	}
	redis.Kill()
	s.want("200 429", "192.0.2.1", "192.0.2.1")
}

// TestShareWantsNodes refuses rules of mode share without the number of processes.
func TestShareWantsNodes(t *testing.T) {
	redis := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(file, []byte("rules:\n  - {name: a, key: [ip], limits: [10/h], mode: share}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "respond hello")
	site := "stint a {\nrules " + file + "\nstore " + redis.URL() + "\n%s}\nrespond hello"
	if err := s.load(fmt.Sprintf(site, "")); err == nil || !strings.Contains(err.Error(), "nodes says how many") {
		t.Errorf("without nodes: %v", err)
	}
	if err := s.load(fmt.Sprintf(site, "nodes 2\n")); err != nil {
		t.Error(err)
	}
}

// TestMetrics counts decisions beside Caddy's own metrics.
func TestMetrics(t *testing.T) {
	s := start(t, "route /metrics {\nmetrics\n}\nroute {\nstint counted 1/h\nstint too 5/h\nrespond hello\n}")
	s.want("200 429 429", "192.0.2.1", "192.0.2.1", "192.0.2.1")
	_, _, body := s.ask("192.0.2.9", "/metrics")
	for _, want := range []string{
		`stint_decisions_total{decision="allowed",name="counted",rule="counted"} 1`,
		`stint_decisions_total{decision="denied",name="counted",rule="counted"} 2`,
		`stint_decisions_total{decision="allowed",name="too",rule="too"} 1`,
		`stint_decision_duration_seconds_count{name="counted"} 3`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	if strings.Contains(body, "192.0.2.1") {
		t.Error("a client's address is among the metrics")
	}
}

// TestMany lets pass as many of many at once as there is room for, while Caddy takes
// configurations.
func TestMany(t *testing.T) {
	const site = "stint many 100/d {\nkey all\n}\nrespond hello"
	s := start(t, site)
	var passed atomic.Int64
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 25 {
				if status, _, _ := s.ask("192.0.2.1", "/"); status == http.StatusOK {
					passed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if passed.Load() != 100 {
		t.Errorf("%d passed, want 100", passed.Load())
	}
}

// TestCaddyfile reads directives, and says what is wrong with others.
func TestCaddyfile(t *testing.T) {
	for _, c := range []struct{ directive, want string }{
		{"stint a 1/m", `{"handler":"stint","limits":["1/m"],"name":"a"}`},
		{"stint a \"10/s burst 20\" 100/h {\nlimit 1k/d\nkey {client_ip} x\non_missing deny\nshadow\nstore redis://h\nnodes 3\nmax_keys 10\nsecret s\ndialect none\n}",
			`{"dialect":"none","handler":"stint","key":["{http.vars.client_ip}","x"],"limits":["10/s burst 20","100/h","1k/d"],"max_keys":10,"name":"a","nodes":3,"on_missing":"deny","secret":"s","shadow":true,"store":"redis://h"}`},
		{"stint a {\nrules f\n}", `{"handler":"stint","name":"a","rules_file":"f"}`},
		{"stint", "want a name"},
		{"stint a {\nlimits 1/m\n}", "unknown option limits"},
		{"stint a {\nlimit\n}", "rong argument count"},
		{"stint a {\nnodes x\n}", "nodes x: want a whole number"},
		{"stint a {\nshadow on\n}", "rong argument count"},
	} {
		config, err := adapt("http:// {\n" + c.directive + "\n}")
		if said := fmt.Sprint(string(config), err); !strings.Contains(said, c.want) {
			t.Errorf("%s: %s, want %s", c.directive, said, c.want)
		}
	}
}

// TestRefused loads what makes no sense; the errors show no password.
func TestRefused(t *testing.T) {
	s := start(t, "respond hello")
	for site, want := range map[string]string{
		"stint a":                        "give one of limits, rules_file and rules",
		"stint a 1/m {\nrules f\n}":      "give one of limits, rules_file and rules",
		"stint a 0/m":                    "0",
		"stint a/b 1/m":                  "name",
		"stint a 1/m {\ndialect x\n}":    "want draft11",
		"stint a 1/m {\non_missing x\n}": "on_missing",
		"stint a {\nrules /nowhere\n}":   "/nowhere",
		"stint a {\nrules f\nkey b\n}":   "go with limits",
		"stint a 1/m {\nsecret short\n}": "at least 16",
		"stint a 1/m {\nstore http://user:passw0rdpassw0rd@redis\n}": "want redis://",
	} {
		err := s.load(site)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "passw0rdpassw0rd") {
			t.Errorf("%s: %v, want %s", site, err, want)
		}
	}
	s.want("200", "192.0.2.1")
}
