package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/service/server"
	"github.com/stint-dev/stint/service/testkit/wire"
)

// A recipe is what docs/SERVE.md says of one proxy, and what it needs to run
// without rights and without files outside of its directory.
type recipe struct {
	program string // of the Debian package of that name
	block   string // of docs/configs
	more    string // of docs/configs, which the block needs
	file    string // where the block has that
	site    string // in the block: where the proxy listens
	sites   string // the same, also for HTTP/2: for any host, or the addresses TEXT and FRAMES; empty where it speaks none
	around  func(dir, block string) string
	args    func(dir, config string) []string
	away    int // the status while stint is away
	blocked int // the status for a path that servers read in different ways
}

// configFile returns a file of docs/configs.
func configFile(t *testing.T, name string) string {
	t.Helper()
	text := disk.Read(t, "../../docs/configs/"+name)
	return string(text)
}

// recipes are the recipes of the document.
func recipes(t *testing.T) []recipe {
	return []recipe{
		{
			program: "nginx", block: configFile(t, "nginx.conf"), more: configFile(t, "nginx_headers.conf"), file: "/etc/nginx/stint_headers.conf", site: "127.0.0.1:8000", sites: "TEXT; listen FRAMES http2", away: 500, blocked: 403,
			around: func(_, block string) string {
				return `daemon off; master_process off; pid nginx.pid; error_log stderr warn;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
` + block + "}\n"
			},
			args: func(dir, config string) []string { return []string{"-p", dir, "-c", config, "-e", "stderr"} },
		},
		{
			program: "caddy", block: configFile(t, "Caddyfile"), site: "example.com", sites: "http://:PORT1, http://:PORT2", away: 502, blocked: 400,
			around: func(_, block string) string {
				return "{\n\tadmin off\n\tauto_https off\n\tdefault_bind 127.0.0.1\n\tservers {\n\t\tprotocols h1 h2c\n\t}\n}\n" + block
			},
			args: func(_, config string) []string {
				return []string{"run", "--config", config, "--adapter", "caddyfile"}
			},
		},
		{
			program: "haproxy", block: configFile(t, "haproxy.cfg"), more: configFile(t, "haproxy.lua"), file: "/etc/haproxy/stint.lua",
			site: "127.0.0.1:8000", sites: "TEXT\n    bind FRAMES proto h2", away: 503, blocked: 400,
			around: func(_, block string) string { return block },
			args:   func(_, config string) []string { return []string{"-db", "-f", config} },
		},
		{
			program: "apache2", block: configFile(t, "apache.conf"), more: configFile(t, "apache.lua"), file: "/etc/apache2/stint.lua",
			site: "127.0.0.1:8000", away: 503, blocked: 400,
			around: func(dir, block string) string {
				head := fmt.Sprintf("ServerRoot %[1]s\nPidFile %[1]s/pid\nErrorLog /dev/stderr\nServerName localhost\n", dir)
				for _, module := range []string{"mpm_event", "authz_core", "proxy", "proxy_http", "lua"} {
					head += fmt.Sprintf("LoadModule %[1]s_module /usr/lib/apache2/modules/mod_%[1]s.so\n", module)
				}
				if os.Getuid() == 0 {
					head += "User nobody\nGroup nogroup\n"
				}
				_, at, _ := strings.Cut(block, "<VirtualHost ")
				at, _, _ = strings.Cut(at, ">")
				return head + "Listen " + at + "\n" + block
			},
			args: func(_, config string) []string { return []string{"-DFOREGROUND", "-f", config} },
		},
	}
}

// TestRecipes runs each proxy of docs/SERVE.md with the file that the document names,
// between a client and a server.
func TestRecipes(t *testing.T) {
	for _, r := range recipes(t) {
		t.Run(r.program, func(t *testing.T) {
			t.Parallel()
			tryRecipe(t, r)
		})
	}
}

func tryRecipe(t *testing.T, r recipe) {
	var reached atomic.Int64
	address, _, stop := r.between(t, someRules+"  - {name: host, match: {host: admin.internal}, block: true}\n", func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI)
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(method, path string, headers ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader("user=ada"))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	const policy = `"login";q=5;w=60`
	for i := range 5 {
		resp, body := send("POST", "/login?x=%2F&deny_status=401")
		if left := fmt.Sprintf(`"login";r=%d;t=`, 4-i); resp.StatusCode != http.StatusOK || body != "POST /login?x=%2F&deny_status=401" ||
			!strings.HasPrefix(resp.Header.Get("RateLimit"), left) || resp.Header.Get("RateLimit-Policy") != policy {
			t.Errorf("request %d: %d %q %v; want RateLimit: %s", i, resp.StatusCode, body, resp.Header, left)
		}
	}
	// What clients claim changes nothing: they are the same client still, and
	// choose no status.
	for _, claim := range [][]string{
		nil, {"X-Forwarded-For", "198.51.100.1"}, {"X-Forwarded-Uri", "/free"}, {"X-Original-URI", "/free"}, {"X-Original-Method", "GET"},
		{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/free", "X-Forwarded-Host", "x"}, {"Content-Type", "application/grpc"},
		{"X-Original-Host", "x", "RateLimit", "mine"}, {"Host", "127.0.0.1"}, {"Upgrade", "websocket", "Connection", "Upgrade"},
	} {
		for _, path := range []string{"/login", "/login?deny_status=401", "/login?deny_status=200&a=%zz"} {
			resp, _ := send("POST", path, claim...)
			if resp.StatusCode != http.StatusTooManyRequests || len(resp.Header.Get("Retry-After")) != 2 ||
				!strings.HasPrefix(resp.Header.Get("RateLimit"), `"login";r=0;t=`) || resp.Header.Get("RateLimit-Policy") != policy {
				t.Errorf("%s %v: %d %v; want 429 with Retry-After and fields", path, claim, resp.StatusCode, resp.Header)
			}
		}
	}
	for _, one := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{"GET", "/login", nil, http.StatusOK},
		{"GET", "/other?q=1", []string{"RateLimit", "mine"}, http.StatusOK},
		{"GET", "/other", []string{"X-Bad", "1"}, http.StatusForbidden},
		{"GET", "/forbidden", nil, http.StatusForbidden}, // the server's own
		{"GET", "/a/..%2Flogin", nil, r.blocked},
		{"GET", "/_stint", nil, map[bool]int{true: http.StatusNotFound, false: http.StatusOK}[r.program == "nginx"]},
	} {
		resp, _ := send(one.method, one.path, one.headers...)
		if resp.StatusCode != one.want || resp.Header.Get("Retry-After") != "" || resp.Header.Get("RateLimit") != "" {
			t.Errorf("%s %s %v: %d %v; want %d", one.method, one.path, one.headers, resp.StatusCode, resp.Header, one.want)
		}
	}
	for _, one := range []struct {
		request string
		reaches bool // the server behind
	}{
		{"GET /api/x HTTP/1.1\r\nHost: " + address + "\r\nX-Api-Key: a", true},
		// Apache takes away what Connection names: the rules would see a key that the server does not.
		{"GET /api/x HTTP/1.1\r\nHost: " + address + "\r\nX-Api-Key: b\r\nConnection: X-Api-Key", r.program == "nginx" || r.program == "haproxy"},
		{"GET /other HTTP/1.1\r\nHost: " + address + ",h", r.program == "nginx"}, // which sends a name of its own
	} {
		before := reached.Load()
		rawRequest(t, address, one.request)
		if got := reached.Load() > before; got != one.reaches {
			t.Errorf("%q reached the server: %v, want %v", one.request, got, one.reaches)
		}
	}
	_ = stop() // it is away now
	before := reached.Load()
	if resp, _ := send("GET", "/other"); resp.StatusCode != r.away || reached.Load() != before {
		t.Errorf("without stint: %d, %d reached the server; want %d and none", resp.StatusCode, reached.Load()-before, r.away)
	}
}

// TestRecipesOdd sends through each proxy of docs/SERVE.md what clients can choose, for a
// path that is blocked: nothing reaches the server, the proxy lives and answers others, and
// none answers 500, for which nginx writes a line.
func TestRecipesOdd(t *testing.T) {
	need.Time(t)
	const rules = `
trusted_proxies: [127.0.0.1]
rules:
  - {name: closed, match: {path: '/closed/**'}, block: true}
  - {name: key, match: {header.x-api-key: true}, key: [header.x-api-key], limits: ["1000 per day"]}
`
	all := recipes(t)
	opens := all[0]
	inner, outer, _ := strings.Cut(serveLines(t, "nginx")[1], "\n")
	opens.block = strings.Replace(strings.Replace(opens.block, "internal;", "internal;\n"+inner, 1), "location @stint_denied", outer+"\nlocation @stint_denied", 1)
	for _, r := range append(all, opens) {
		t.Run(r.program, func(t *testing.T) {
			t.Parallel()
			var reached atomic.Int64
			text, frames, _ := r.between(t, rules, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/open" {
					reached.Add(1)
				}
			})
			try := func(name, address string, say func(net.Conn) wire.Answer) {
				t.Helper()
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				defer conn.Close()
				if a := say(conn); a.Status == "500" || reached.Load() > 0 {
					t.Errorf("%s: answered %s, %d reached the server", name, a.Status, reached.Swap(0))
				}
				other, err := http.Get("http://" + text + "/open")
				if err != nil || other.StatusCode != http.StatusOK {
					t.Fatalf("%s: another client: %v %v", name, other, err)
				}
				_ = other.Body.Close()
			}
			for name, q := range oddRequests() {
				try(name, text, func(conn net.Conn) wire.Answer { return wire.Text(conn, q) })
				if frames != "" && len(fmt.Sprint(q)) < 16<<10 {
					try(name+", HTTP/2", frames, func(conn net.Conn) wire.Answer { return wire.Frames(conn, q, nil) })
				}
			}
			for _, odd := range []string{"GET /closed/x HTTP/1.0", "GET /closed/x HTTP/1.1", "GET /closed/x HTTP/1.1\r\nHost: a\r\nHost: b", "GET http://h/closed/x HTTP/1.1\r\nHost: h",
				"GE\x01T /closed/x HTTP/1.1\r\nHost: h", "get /closed/x HTTP/1.1\r\nHost: h", "GET /closed/x HTTP/1.1\r\nHost:", "GET /closed/x"} {
				try(odd, text, func(conn net.Conn) (a wire.Answer) {
					_ = conn.SetDeadline(time.Now().Add(patience))
					fmt.Fprintf(conn, "%s\r\nConnection: close\r\n\r\n", odd)
					if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil { // it may be cut off, or answered as HTTP/0.9 is
						a.Status = fmt.Sprint(resp.StatusCode)
					}
					return a
				})
			}
		})
	}
}

// TestRecipesOverrides sends through each proxy of docs/SERVE.md the headers from which servers
// take another host or path: under their own names they are taken away, since proxies in
// front may set them; in other spellings nothing that has them reaches the server.
func TestRecipesOverrides(t *testing.T) {
	const rules = `
trusted_proxies: [127.0.0.1]
rules:
  - {name: host, match: {host: admin.internal}, block: true}
  - {name: path, match: {path: "/secret/**"}, block: true}
`
	for _, r := range recipes(t) {
		t.Run(r.program, func(t *testing.T) {
			t.Parallel()
			address, _, _ := r.between(t, rules, func(_ http.ResponseWriter, r *http.Request) {
				for name, lines := range r.Header {
					if strings.Contains(strings.Join(lines, ","), "secret") {
						t.Errorf("%s: %q reached the server", name, lines)
					}
				}
			})
			send := func(name, value string) int {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/open/x", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = "a.example"
				r.Header[name] = []string{value, value}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				return resp.StatusCode
			}
			for _, name := range []string{
				"X-Forwarded-Host", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Original-Host", "X-Original-Url", "X-Host",
				"X-Http-Host-Override", "X-Rewrite-Url", "X-Script-Name", "Forwarded",
			} {
				value := map[bool]string{true: "/open/x?secret", false: "secret.internal"}[strings.HasSuffix(name, "Url")]
				switch name {
				case "X-Script-Name", "X-Forwarded-Prefix":
					value = "/open,/secret"
				case "Forwarded":
					value = "for=192.0.2.7;host=secret.internal"
				}
				if status := send(name, value); status != http.StatusOK {
					t.Errorf("%s: %d", name, status)
				}
				send(strings.ReplaceAll(name, "-", "_"), value)
				send(strings.Replace(name, "-", ".", 1), value)
				send(strings.ToUpper(name), value)
			}
			send("SCRIPT_NAME", "/open,secret")
		})
	}
}

// serveLines returns the blocks of docs/SERVE.md in the language of a proxy.
func serveLines(t *testing.T, language string) []string {
	t.Helper()
	return pages.Blocks(pages.Read(t, "docs/SERVE.md"), language)
}

// TestRecipesTwo has proxies ask two processes, and let requests pass when none answers.
func TestRecipesTwo(t *testing.T) {
	proxies, lines := recipes(t), func(language string, n int) string { return serveLines(t, language)[n] }
	swap := strings.NewReplacer
	for i, one := range []struct {
		two, opens func(r *recipe) // how the recipe changes; nil if it does not
	}{
		{func(r *recipe) {
			r.block = lines("nginx", 0) + "\n" + swap("http://127.0.0.1:8080", "http://stint").Replace(r.block)
		},
			func(r *recipe) {
				inner, outer, _ := strings.Cut(lines("nginx", 1), "\n")
				r.block = swap("internal;", "internal;\n"+inner, "location @stint_denied", outer+"\nlocation @stint_denied").Replace(r.block)
			}},
		{func(r *recipe) {
			r.block = swap("forward_auth 127.0.0.1:8080 {", "forward_auth 127.0.0.1:8080 127.0.0.1:8082 {\n"+lines("caddyfile", 0)).Replace(r.block)
		}, nil},
		{func(r *recipe) {
			at := swap("127.0.0.1:8079", freeport.Addr(t))
			r.block, r.more = at.Replace(r.block+"\n"+lines("haproxy", 0)+"\n"), at.Replace(swap("127.0.0.1:8080", "127.0.0.1:8079").Replace(r.more))
		}, func(r *recipe) { r.more = swap("  local reply", lines("lua", 0)+"\n  local reply").Replace(r.more) }},
		{nil, func(r *recipe) {
			r.more = swap("  for _, name in ipairs{\"RateLimit\"", lines("lua", 1)+"\n  for _, name in ipairs{\"RateLimit\"").Replace(r.more)
		}},
	} {
		t.Run(proxies[i].program, func(t *testing.T) {
			t.Parallel()
			tryTwo(t, proxies[i], one.two, one.opens)
		})
	}
}

func tryTwo(t *testing.T, r recipe, two, opens func(*recipe)) {
	handler := server.CheckHost(server.NewHandler(newOptions(t, someRules)), nil)
	first, stopFirst := serve(t, handler, server.ServeOptions{})
	second, stopSecond := serve(t, handler, server.ServeOptions{})
	if two != nil {
		two(&r)
		r.block = strings.ReplaceAll(r.block, "127.0.0.1:8082", second)
	}
	if opens != nil {
		opens(&r)
	}
	behind := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer behind.Close()
	address, _ := r.start(t, first, behind.Listener.Addr().String())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(when string, want func(i int) int) {
		t.Helper()
		for i := range 8 {
			resp, err := client.Post("http://"+address+"/login", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if status := resp.StatusCode; status != want(i) && (want(i) != 500 || status < 500) {
				t.Errorf("%s: request %d: %d, want %d", when, i, resp.StatusCode, want(i))
			}
		}
	}
	ask("with both", func(i int) int { return map[bool]int{true: 200, false: 429}[i < 5] })
	_ = stopFirst() // it is away from here on
	if two != nil {
		ask("with one", func(int) int { return 429 })
	}
	_ = stopSecond()
	away := 500 // or any above
	if opens != nil {
		away = http.StatusOK
	}
	ask("with none", func(int) int { return away })
}

// oddRequests are requests with a number, a length and bytes of fields that clients choose.
func oddRequests() map[string]wire.Request {
	all := map[string]wire.Request{}
	get := func(more ...string) wire.Request { return wire.Get("/closed/x", more...) }
	for _, n := range []int{89, 90, 91, 95, 96, 97, 98, 99, 100, 101, 102, 150, 500} {
		q := get()
		for i := range n {
			q = q.And(fmt.Sprint("x", i), "y")
		}
		all[fmt.Sprint(n, " fields")] = q
		all[fmt.Sprint(n, " values")] = get(strings.Split(strings.TrimSuffix(strings.Repeat("x,y,", n), ","), ",")...)
	}
	for _, n := range []int{4, 7, 8, 12, 14, 15, 16, 17, 20, 24, 28, 31, 33, 64, 200} {
		all[fmt.Sprint("a field of ", n, " KiB")] = get("x", strings.Repeat("y", n<<10))
		all[fmt.Sprint("fields of ", n, " KiB")] = get(strings.Split(strings.TrimSuffix(strings.Repeat("x,"+strings.Repeat("y", 1000)+",", n), ","), ",")...)
		all[fmt.Sprint("a query of ", n, " KiB")] = get().With(":path", "/closed/x?"+strings.Repeat("y", n<<10))
	}
	for c := range 256 {
		if c > ' ' && c < 0x7f && c%8 != 0 || c == '\r' || c == '\n' || c > 0xa0 && c%16 != 15 {
			continue
		}
		all[fmt.Sprintf("byte %x in a value", c)] = get("x-api-key", "a"+string([]byte{byte(c)})+"b")
		all[fmt.Sprintf("byte %x in a name", c)] = get("x"+string([]byte{byte(c)})+"y", "z")
		all[fmt.Sprintf("byte %x in a path", c)] = get().With(":path", "/closed/"+string([]byte{byte(c)}))
		all[fmt.Sprintf("byte %x in a host", c)] = get().With(":authority", "h"+string([]byte{byte(c)}))
	}
	return all
}

// rawRequest sends a request and reads what comes back.
func rawRequest(t *testing.T, address, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "%s\r\n\r\n", request)
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil { // its body does not matter
		t.Errorf("%q: %v", request, err)
	}
}

// between runs the proxy between a stint with some rules, which stop takes away, and a server.
func (r *recipe) between(t *testing.T, rules string, behind http.HandlerFunc) (address, frames string, stop func() error) {
	t.Helper()
	stint, stop := serve(t, server.CheckHost(server.NewHandler(newOptions(t, rules)), nil), server.ServeOptions{})
	s := httptest.NewServer(behind)
	t.Cleanup(s.Close)
	address, frames = r.start(t, stint, s.Listener.Addr().String())
	return address, frames, stop
}

// start runs the proxy until the test ends, and returns its address and that for HTTP/2,
// if there is one.
func (r *recipe) start(t *testing.T, stint, behind string) (address, frames string) {
	t.Helper()
	path := need.Program(t, r.program)
	address = freeport.Addr(t)
	dir := readable(t)
	script, config := filepath.Join(dir, "more"), filepath.Join(dir, "config")
	sites := "TEXT"
	if r.sites != "" {
		sites, frames = r.sites, freeport.Addr(t)
	}
	port := func(address string) string { return address[strings.LastIndex(address, ":")+1:] }
	site := strings.NewReplacer("TEXT", address, "FRAMES", frames, "PORT1", port(address), "PORT2", port(frames)).Replace(sites)
	replace := []string{"127.0.0.1:8080", stint, "127.0.0.1:9000", behind, r.site, site}
	if r.file != "" {
		replace = append(replace, r.file, script)
	}
	local := strings.NewReplacer(replace...)
	for name, text := range map[string]string{script: local.Replace(r.more), config: r.around(dir, local.Replace(r.block))} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	proxy := exec.CommandContext(ctx, path, r.args(dir, config)...)
	proxy.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	proxy.Cancel = func() error { return proxy.Process.Signal(syscall.SIGTERM) }
	var said strings.Builder
	proxy.Stdout, proxy.Stderr, proxy.WaitDelay = &said, &said, patience
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = proxy.Wait() // it was sent a signal
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", r.program, said.String())
		}
	})
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address, frames
		}
		select {
		case <-ended:
			t.Fatalf("%s ended:\n%s", r.program, said.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen: %v", r.program, err)
		}
	}
}
