package nginxrules_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/service/importers/nginxrules"
	"github.com/stint-dev/stint/service/rules"
)

// shop is a configuration with limits at each level. Rates are so slow that no
// more is let through while a test runs.
const shop = `
worker_processes 1;
error_log stderr crit; # what is denied is no error here
pid %[1]s/nginx.pid;
events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
	limit_req_zone $binary_remote_addr zone=all:1m rate=1r/m;
	limit_req_zone $binary_remote_addr$uri zone=page:1m rate=2r/m;
	limit_req_zone $http_x_api_key zone=key:1m rate=1r/m;
	limit_req_zone "every one" zone=one:1m rate=1r/m;
	limit_req_status 429;
	limit_req zone=all burst=20 nodelay;
	server {
		listen 127.0.0.1:%[2]d;
		server_name shop.example.com;
		include locations.conf;
	}
	server {
		listen 127.0.0.1:%[2]d;
		server_name .example.org www.example.net;
		limit_req zone=one burst=4 nodelay;
		location / { empty_gif; }
		location /free/ { limit_req zone=all burst=20 nodelay; limit_req zone=page burst=1 nodelay; empty_gif; }
	}
	server {
		listen 127.0.0.1:%[2]d default_server;
		limit_req zone=one burst=2 nodelay;
		location / { empty_gif; }
	}
}
`

const locations = `
location / { empty_gif; }
location /api { limit_req zone=key burst=3 nodelay; empty_gif; location /api/deep/ { empty_gif; } }
location = /login { limit_req zone=all nodelay; empty_gif; }
location /static/ { limit_req zone=page burst=2 nodelay; empty_gif; }
location ~ \.(png|jpg)$ { limit_req zone=page burst=1 nodelay; empty_gif; }
location ^~ "/static/raw/" { limit_req zone=one burst=7 nodelay; limit_req zone=all burst=20 nodelay; empty_gif; }
location ^~ /raw/ { empty_gif; }
location = /exact.png { empty_gif; }
`

// A request is sent to nginx, and to the rules.
type request struct{ host, path, key string }

func (r request) Attribute(name string) (string, bool) {
	switch name {
	case "ip":
		return "127.0.0.1", true
	case "host":
		return r.host, true
	case "path":
		return r.path, true
	case "method":
		return "GET", true
	case "header.x-api-key":
		return r.key, r.key != ""
	}
	return "", false
}

// converted returns the rules that were made of a configuration, and the notes.
func converted(t *testing.T, files map[string]string) (string, []string) {
	t.Helper()
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	r := nginxrules.Reader{
		Read: func(name string) ([]byte, error) { return fs.ReadFile(all, name) },
		Glob: func(pattern string) ([]string, error) { return fs.Glob(all, pattern) },
	}
	read, err := r.File("nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	yaml, notes, err := nginxrules.Convert(read)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, n := range notes {
		text := n.String()
		if n.Lost {
			text = "lost: " + text
		}
		texts = append(texts, text)
	}
	return string(yaml), texts
}

// denies returns how many of the given requests rules deny.
func denies(t *testing.T, file string, all []request) map[request]int {
	t.Helper()
	f, err := rules.Decode("stint.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%v in\n%s", err, file)
	}
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	p, err := policy.New(store, f.Rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var result policy.Result
	denied := make(map[request]int)
	for _, r := range all {
		if err := p.Decide(context.Background(), r, 1, &result); err != nil {
			t.Fatal(err)
		}
		if !result.Decision.Allowed {
			denied[r]++
		}
	}
	return denied
}

// nginx starts nginx with the configuration in a directory.
func nginx(t *testing.T, conf string, more map[string]string, known ...func(port int)) (port int) {
	t.Helper()
	path := need.Program(t, "nginx")
	var err error
	if port, err = strconv.Atoi(freeport.Port(t)); err != nil {
		t.Fatal(err)
	}
	for _, tell := range known {
		tell(port)
	}
	dir := t.TempDir()
	more["nginx.conf"] = fmt.Sprintf(conf, dir, port)
	for name, text := range more {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(path, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-g", "daemon off; master_process off;")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
			return port
		}
	}
	t.Fatal("nginx does not answer")
	return 0
}

// ask sends a request to nginx and reports whether it was denied.
func ask(t *testing.T, port int, r request) bool {
	t.Helper()
	q, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, r.path), nil)
	if err != nil {
		t.Fatal(err)
	}
	if q.Host = r.host; r.key != "" {
		q.Header.Set("X-Api-Key", r.key)
	}
	w, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, w.Body)
	w.Body.Close()
	if w.StatusCode != http.StatusOK && w.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%v: %d", r, w.StatusCode)
	}
	return w.StatusCode == http.StatusTooManyRequests
}

// The same requests are denied by nginx and by the rules made of its
// configuration, one place of it after another, with fresh counters.
func TestSameAsNginx(t *testing.T) {
	rounds := [][]request{
		{{"shop.example.com", "/", ""}, {"shop.example.com", "/about", ""}},
		{{"shop.example.com", "/api/orders", "k1"}, {"shop.example.com", "/apiary", "k1"}, {"shop.example.com", "/api", "k2"}, {"shop.example.com", "/api/orders", ""}, {"shop.example.com", "/api/deep/x", "k1"}},
		{{"shop.example.com", "/login", ""}, {"shop.example.com", "/login/x", ""}},
		{{"shop.example.com", "/static/a.css", ""}, {"shop.example.com", "/static/b.css", ""}, {"shop.example.com", "/static/c.png", ""}, {"shop.example.com", "/d.jpg", ""}},
		{{"shop.example.com", "/static/raw/x.png", ""}, {"shop.example.com", "/static/raw/y", ""}, {"shop.example.com", "/", ""}},
		{{"www.example.org", "/", ""}, {"example.org", "/x", ""}, {"www.example.net", "/free/a", ""}, {"www.example.net", "/free/b", ""}},
		{{"shop.example.com", "/raw/z.png", ""}, {"shop.example.com", "/exact.png", ""}},
		{{"elsewhere.example", "/", ""}, {"shop.example.com", "/", ""}},
	}
	for i, round := range rounds {
		files := map[string]string{"locations.conf": locations}
		port := nginx(t, shop, files)
		file, _ := converted(t, files)
		var all []request
		want := make(map[request]int)
		for range 12 {
			for _, r := range round {
				all = append(all, r)
				if ask(t, port, r) {
					want[r]++
				}
			}
		}
		got := denies(t, file, all)
		for _, r := range round {
			if got[r] != want[r] {
				t.Errorf("round %d, %v: the rules deny %d of 12, nginx %d\n%s", i, r, got[r], want[r], file)
			}
		}
	}
}

// Where requests wait, as many are denied at once.
func TestSameQueue(t *testing.T) {
	const conf = `
error_log stderr crit; pid %[1]s/nginx.pid; events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
	limit_req_zone $binary_remote_addr zone=q:1m rate=1r/s;
	server { listen 127.0.0.1:%[2]d; location / { limit_req zone=q burst=2; limit_req_status 429; empty_gif; } }
}
`
	files := map[string]string{}
	port := nginx(t, conf, files)
	file, notes := converted(t, files)
	if len(notes) > 0 || !strings.Contains(file, `"1/s burst 2 leaky_queue"`) {
		t.Errorf("%v\n%s", notes, file)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	want, one := 0, request{"x", "/", ""}
	start := time.Now()
	for range 12 {
		all.Go(func() {
			if ask(t, port, one) {
				mu.Lock()
				defer mu.Unlock()
				want++
			}
		})
	}
	all.Wait()
	if got := denies(t, file, slices.Repeat([]request{one}, 12))[one]; got != want && time.Since(start) < 2500*time.Millisecond {
		t.Errorf("the rules deny %d of 12 at once, nginx %d", got, want)
	}
}

// Rules take servers with one name on different ports for one. A note says so if it makes a difference:
// a server that only redirects makes none.
func TestPorts(t *testing.T) {
	const zone = "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\n"
	const limited = "server { listen 443 ssl; server_name a.example; location / { limit_req zone=a; proxy_pass http://app; } }\n"
	for other, want := range map[string]bool{
		"server { listen 8080; server_name a.example; location / { proxy_pass http://app; } }":                                    true,
		"server { listen 8080; location / { proxy_pass http://app; } }":                                                           true,
		"server { listen 80; server_name a.example; location / { limit_req zone=a burst=9; proxy_pass http://app; } }":            true,
		"server { listen 127.0.0.1:443; server_name a.example; location / { proxy_pass http://app; } }":                           true,
		"server { listen 80; server_name a.example; location / { limit_req zone=a; proxy_pass http://other; } }":                  false,
		"server { listen 80; server_name a.example; return 301 https://$host$request_uri; }":                                      false,
		"server { listen 80; server_name a.example; location /.well-known/ { root /srv; } location / { return 301 https://a; } }": false,
	} {
		_, notes := converted(t, map[string]string{"nginx.conf": zone + other + "\n" + limited})
		if got := slices.ContainsFunc(notes, func(n string) bool {
			return strings.HasPrefix(n, "nginx.conf:3: rules do not see the port or its address: the limits of this server hold for requests to that at nginx.conf:2")
		}); got != want {
			t.Errorf("%s: %v, want %v\n%s", other, got, want, strings.Join(notes, "\n"))
		}
	}
}

// Notes say, with file and line, which limits are not kept and what differs.
func TestNotes(t *testing.T) {
	file, notes := converted(t, map[string]string{"nginx.conf": `stream { server { listen 3306; limit_conn addr 5; } } http {
	map $ssl_client_s_dn $who { default $binary_remote_addr; "" ""; }
	limit_req_zone $who zone=mapped:1m rate=1r/s;
	limit_req_zone $request_uri zone=uri:1m rate=1r/s;
	limit_conn_zone $binary_remote_addr zone=addr:1m;
	server {
		limit_conn addr 5;
		limit_req zone=mapped;
		content_by_lua_block { if x then y = "}" end }
		location /a { limit_req zone=uri burst=5 delay=2; limit_req_dry_run on; limit_req_status 503; }
		location ~* ^/b[0-9]+ { limit_req zone=uri; }
		location /c*/ { limit_req zone=uri; }
		location "/{d}/" { limit_req zone=uri; }
		location /e%20/ { limit_req zone=uri; }
		location /f//g/ { limit_req zone=uri; }
	}
}`})
	for i, want := range []string{
		"lost: nginx.conf:1: limit_conn in stream is NOT KEPT", "lost: nginx.conf:8: limit_req zone=mapped is NOT KEPT: the key of the zone mapped (nginx.conf:3)", "nginx.conf:4: $request_uri has the query", "nginx.conf:7: limit_conn is a limit in flight",
		"nginx.conf:10: delay=2:", "nginx.conf:10: limit_req_status 503", "nginx.conf:11: location ~* ^/b[0-9]+ takes more paths here: /b*/**",
		"lost: nginx.conf:12: location /c*/ is NOT KEPT", "lost: nginx.conf:13: location /{d}/ is NOT KEPT", "lost: nginx.conf:14: location /e%20/ is NOT KEPT", "lost: nginx.conf:15: location /f//g/ is NOT KEPT",
	} {
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("%d: no note %q in\n%s", i, want, strings.Join(notes, "\n"))
		}
	}
	const want = `ignore_path_case: true
rules:
  - name: uri-burst-6-dry
    match: {path: /a*/**}
    key: [path]
    limits: ["1/s burst 6"]
    shadow: true
  - name: uri
    match: {path: /b*/**}
    key: [path]
    limits: ["1/s burst 1"]
  - name: addr-5
    key: [ip]
    ipv6_prefix: 128
    limits: ["5 in flight"]
`
	if file != want {
		t.Errorf("%s\nwant\n%s", file, want)
	}
}

// A configuration that nginx refuses is an error, with file and line.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"http {": "nginx.conf:1: a block has no end",
		"}":      "nginx.conf:1: } ends no block",
		"http { limit_conn_zone $uri; }  limit_conn a 1;":                              "nginx.conf:1: limit_conn_zone: write a key and a zone",
		"limit_conn_zone $uri zone=a:1m; limit_conn a;":                                "nginx.conf:1: limit_conn: write a zone and a number",
		"limit_conn_zone $uri zone=a:1m; limit_conn a 0;":                              "nginx.conf:1: limit_conn a 0: want a number from 1 to 65535",
		"limit_conn_zone $uri zone=a:1m; limit_conn b 5;":                              "nginx.conf:1: limit_conn: there is no limit_conn_zone \"b\"",
		"limit_conn_zone $uri zone=a:1m; location / { if ($x) { limit_conn a 5; } }":   "nginx.conf:1: limit_conn cannot stand in if",
		"http { server { listen 80 } }":                                                "nginx.conf:1: listen: ; is missing",
		"http {\nlimit_req_zone $x zone=a:1m rate=fast; }":                             "nginx.conf:2: rate=fast: write a rate",
		"http { limit_req_zone $x rate=1r/s burst=3; }":                                `limit_req_zone: "burst=3" is not known`,
		"http { limit_req zone=none; }":                                                `there is no limit_req_zone "none"`,
		"http { limit_req_zone $uri zone=a:1m rate=1r/s; limit_req zone=a burst=-1; }": "burst=-1: want a whole number",
		"http { x \"y; }":     "a quote has no end",
		"include nginx.conf;": "maybe one includes itself",
		"http { limit_req_zone $uri zone=a:1m rate=0r/s; }": "write a rate",
	} {
		r := nginxrules.Reader{Read: func(string) ([]byte, error) { return []byte(text), nil }}
		all, err := r.File("nginx.conf")
		if err == nil {
			_, _, err = nginxrules.Convert(all)
		}
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Convert makes valid rules, or an error, of configurations whose words have changed places at random.
func TestMutated(t *testing.T) {
	files, err := filepath.Glob("testdata/beside/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var seeds, words []string
	for _, file := range files {
		for _, s := range sides(t, file) {
			seeds, words = append(seeds, s.conf), append(words, strings.Fields(s.conf)...)
		}
	}
	random, good := rand.New(rand.NewPCG(1, 2)), 0
	for range 3000 {
		all := strings.Fields(seeds[random.IntN(len(seeds))])
		for range 1 + random.IntN(4) {
			i, word := random.IntN(len(all)), words[random.IntN(len(words))]
			switch random.IntN(3) {
			case 0:
				all[i] = word
			case 1:
				all = slices.Insert(all, i, word)
			case 2:
				b := []byte(all[i])
				b[random.IntN(len(b))] = "\"'\\*{}()[]$~^|?+.;/ab\x00\xff\n%"[random.IntN(25)]
				all[i] = string(b)
			}
		}
		text := "http {" + strings.Join(all, " ") + "\n}"
		r := nginxrules.Reader{Read: func(string) ([]byte, error) { return []byte(text), nil }}
		read, err := r.File("nginx.conf")
		if err != nil {
			continue
		}
		file, _, err := nginxrules.Convert(read)
		if err != nil {
			continue
		}
		good++
		if _, err := rules.Decode("stint.yaml", file); err != nil {
			t.Errorf("%v in\n%s\nof\n%s", err, file, text)
		}
	}
	if good < 500 {
		t.Errorf("%d configurations: too few to say anything", good)
	}
}

func FuzzConvert(f *testing.F) {
	f.Add(shop)
	f.Add(locations)
	files, err := filepath.Glob("testdata/beside/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		for _, s := range sides(f, file) {
			f.Add("http {" + s.conf + "}")
		}
	}
	f.Add("http { limit_req_zone $uri zone=a:1m rate=1r/s; server { server_name ~x .y; location ~ \\.(a|b)$ { limit_req zone=a; } } }")
	f.Fuzz(func(t *testing.T, text string) {
		first := true
		r := nginxrules.Reader{Read: func(string) ([]byte, error) {
			if !first { // what is included is empty
				return nil, nil
			}
			first = false
			return []byte(text), nil
		}, Glob: func(string) ([]string, error) { return nil, nil }}
		all, err := r.File("nginx.conf")
		if err != nil {
			return
		}
		file, _, err := nginxrules.Convert(all)
		if err != nil {
			return
		}
		if _, err := rules.Decode("stint.yaml", file); err != nil && !strings.Contains(err.Error(), "limit") { // some bursts are more than a limit holds
			t.Errorf("%v in\n%s", err, file)
		}
	})
}

// A file that is a part of an http or a server block keeps its limits.
func TestParts(t *testing.T) {
	const want = `limits: ["1/s burst 6"]`
	for name, text := range map[string]string{
		"locations": "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\nlocation /login { limit_req zone=a burst=5 nodelay; }",
		"http":      "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\nlimit_req zone=a burst=5 nodelay;",
		"no server": "http {\nlimit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\nlimit_req zone=a burst=5 nodelay;\n}",
	} {
		if file, _ := converted(t, map[string]string{"nginx.conf": text}); !strings.Contains(file, want) {
			t.Errorf("%s: %s", name, file)
		}
	}
	file, notes := converted(t, map[string]string{"nginx.conf": "limit_req_zone $server_name zone=a:1m rate=1r/s;\nserver { limit_req zone=a burst=20; }"})
	if !strings.Contains(file, "key: []") {
		t.Errorf("a Host that a client chooses is in the key: %s", file)
	}
	for _, want := range []string{"nginx.conf:1: $server_name", "nginx.conf:2: burst=20: asked at /auth"} {
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("no note %q in %q", want, notes)
		}
	}
}

// TestManyLocations reads a thousand locations. Places are compared each with each, which must not take
// minutes.
func TestManyLocations(t *testing.T) {
	need.Time(t)
	var b strings.Builder
	b.WriteString("limit_req_zone $binary_remote_addr zone=ip:1m rate=1r/m;\nserver {\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "location /l%d/ { limit_req zone=ip burst=%d nodelay; }\n", i, i%7)
	}
	yaml, _ := converted(t, map[string]string{"nginx.conf": b.String() + "}"})
	if n := strings.Count(yaml, "- name:"); n != 7 {
		t.Errorf("%d rules, want 7", n)
	}
}
