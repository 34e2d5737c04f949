package proxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/freeport"

	"github.com/stint-dev/stint/cmd/internal/service/proxy"
)

// The oracle of the proxy: real servers behind it say what they understood of a
// request. What rules block must be what the server would have understood as
// that, and nothing else.

const oracleRules = `
rules:
  - {name: path, match: {path: /login}, block: true, shadow: SHADOW}
  - {name: host, match: {host: admin.internal}, block: true, shadow: SHADOW}
  - {name: key, match: {header.x-api-key: good}, block: true, shadow: SHADOW}
  - {name: cookie, match: {cookie.session: good}, block: true, shadow: SHADOW}
  - {name: query, match: {query.action: login}, block: true, shadow: SHADOW}
`

// An understanding is what a server makes of a request.
type understanding struct {
	Path, Host         string
	Key, Cookie, Query *string
}

// is reports whether the server understood what the rules block.
func (u *understanding) is() bool {
	host := strings.ToLower(u.Host)
	if name, port, ok := strings.Cut(host, ":"); ok && !strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' }) {
		host = name
	}
	return strings.TrimRight(u.Path, "/") == "/login" || strings.TrimSuffix(host, ".") == "admin.internal" ||
		u.Key != nil && *u.Key == "good" || u.Cookie != nil && *u.Cookie == "good" || u.Query != nil && *u.Query == "login"
}

func (u *understanding) String() string {
	b, _ := json.Marshal(u)
	return string(b)
}

// attacks have names: each has passed some proxy's rules.
var attacks = []string{
	"GET a:http://h/login HTTP/1.1\r\nHost: h\r\n",
	"GET a:http://admin.internal/x HTTP/1.1\r\nHost: h\r\n",
	"GET //h/login HTTP/1.1\r\nHost: h\r\n",
	"GET /../login HTTP/1.1\r\nHost: h\r\n",
	"GET /x HTTP/1.1\r\nHost: admin.internal:80:80\r\n",
	"GET /x HTTP/1.1\r\nHost: admin.internal.\r\n",
	"GET /?x=1;action=login HTTP/1.1\r\nHost: h\r\n",
	"GET /?action=a&action=login HTTP/1.1\r\nHost: h\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nCookie: session=\"\\147ood\"\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nCookie: session = good\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nCookie: x=1, session=good\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nCookie: session=a; session=good\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nCookie: session; session=good\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nCookie: a=b;\tsession=good\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: junk\r\nX-Api_Key: good\r\nConnection: X-Api-Key\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: junk\r\nX-Api-Key: good\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX_Api_Key: good\r\n",
	"GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
}

// Pieces of what is made up.
var (
	targets = []string{"/", "/", "/", "//", "login", "login", "login", "%6cogin", "l", "ogin", "%6C", "LOGIN", ".", "..", "%2e", "%2f", "\\", "%5c", ";", ";x=1", "?", "#", "a:", "http:", "http://", "h", "admin.internal", "%00", "%", "%zz", "*", "@", ":80", "%25", "%c0%af", "\"", "'", "|", "~", "%20", "+", "[", "]", "x"}
	hosts   = []string{"admin.internal", "admin.internal", "Admin.INTERNAL", "admin", "internal", ".", ":80", ":", ":443", ",", "@", "h", "[::1]", "/", "%61", "_", ";", "#", "\t", " "}
	keys    = []string{"X-Api-Key: good\r\n", "X-Api-Key: junk\r\n", "X-Api_Key: good\r\n", "X_Api_Key: good\r\n", "x-api-key: good\r\n", "X.Api.Key: good\r\n", "X-Api-Key : good\r\n", "X-Api-Key: \r\n", "X-Api-Key:\tgood \r\n", " good\r\n", "Connection: X-Api-Key\r\n", "Connection: close, x-api_key\r\n", "X-Other: good\r\n", "X-Api-Key: good, junk\r\n", "X-Api-Keys: good\r\n"}
	cookies = []string{"session", "session", "=", "=", "good", "good", "junk", ";", ";", "; ", " ", ",", "\"", "\\147", "\\", "x", "a=b", "session=good", "session=junk", "\t", "%67", "$", "{", "[", "'", "\x80", "Path"}
	queries = []string{"action", "action", "=", "=", "login", "login", "junk", "&", "&", ";", "%61ction", "+", "[]", "#", "%00", "x=1", "%6cogin", "action=login", "action=junk", "?", "%", "%zz", "%26", "%3d", "/"}
)

// madeUp returns a request that varies one part.
func madeUp(r *rand.Rand) string {
	some := func(pieces []string, most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	target, host, lines := "/x", "h", ""
	switch r.IntN(5) {
	case 0:
		target = some(targets, 7)
		if r.IntN(4) > 0 {
			target = "/" + target
		}
	case 1:
		host = some(hosts, 4)
	case 2:
		lines = some(keys, 4)
	case 3:
		lines = "Cookie: " + some(cookies, 8) + "\r\n"
		if r.IntN(8) == 0 {
			lines += "Cookie: " + some(cookies, 4) + "\r\n"
		}
	default:
		target += "?" + some(queries, 8)
	}
	return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + lines
}

// TestOracle sends the same bytes to a proxy that blocks and to one that would
// have, in front of each server, and compares. STINT_SOAK=1 sends 100,000.
func TestOracle(t *testing.T) {
	inputs := 1200
	if os.Getenv("STINT_SOAK") != "" {
		inputs = 20_000
	}
	var skipped []string
	for _, server := range []struct {
		name  string
		start func(t *testing.T) (address string, missing string)
	}{{"net/http", goEcho}, {"nginx", nginxEcho}, {"node", nodeEcho}, {"wsgiref", wsgiEcho}, {"hypercorn", asgiEcho}} {
		t.Run(server.name, func(t *testing.T) {
			address, missing := server.start(t)
			if missing != "" {
				skipped = append(skipped, server.name+" ("+missing+")")
				t.SkipNow()
			}
			o := newOracle(t, address)
			o.noQuery = server.name == "nginx" // it decodes none
			for _, attack := range attacks {
				o.judge(t, attack)
			}
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 1))
			for range inputs {
				o.judge(t, madeUp(random))
				if o.wrong > 10 {
					break
				}
			}
			t.Logf("seed %d: %d passed, %d blocked (of %d the server read no cookie), %d refused", seed, o.passed, o.blocked, o.unread, o.refused)
			if o.passed*20 < inputs || o.blocked*200 < inputs {
				t.Errorf("too few pass or are blocked for this to say anything: %d, %d", o.passed, o.blocked)
			}
		})
	}
	if len(skipped) > 0 {
		t.Log("without ", strings.Join(skipped, ", "))
	}
}

// An oracle asks one server.
type oracle struct {
	blocks, shadows                         *front
	noQuery                                 bool
	passed, blocked, refused, unread, wrong int
}

func newOracle(t *testing.T, address string) *oracle {
	at := func(shadow string) *front {
		return start(t, mustURL(t, "http://"+address), 0, yaml(t, strings.ReplaceAll(oracleRules, "SHADOW", shadow)), httplimit.ClientIP{}, proxy.Options{Underscores: true})
	}
	return &oracle{blocks: at("false"), shadows: at("true")}
}

// judge sends one request.
func (o *oracle) judge(t *testing.T, request string) {
	t.Helper()
	if o.noQuery && strings.Contains(request, "?") {
		return
	}
	status, understood := o.blocks.understood(t, request)
	switch {
	case status == http.StatusForbidden:
		o.blocked++
		_, understood = o.shadows.understood(t, request)
		if understood != nil && understood.Cookie == nil && strings.Contains(request, "\nCookie") {
			o.unread++ // Python reads no cookie at all where one of them is malformed
		} else if understood != nil && !understood.is() {
			o.wrong++
			t.Errorf("%q is blocked, and the server understands %v", request, understood)
		}
	case understood != nil:
		o.passed++
		if understood.is() {
			o.wrong++
			t.Errorf("%q passes, and the server understands %v", request, understood)
		}
	case status == http.StatusSwitchingProtocols:
		o.wrong++
		t.Errorf("%q: the connection was handed over", request)
	default:
		o.refused++
	}
}

// understood sends a request; the understanding is nil where no server of the
// oracle has answered.
func (f *front) understood(t *testing.T, request string) (status int, u *understanding) {
	t.Helper()
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // it is a socket
	fmt.Fprint(conn, request+"Connection: close\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	if answer.Header.Get("Echo") == "" {
		return answer.StatusCode, nil
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	u = new(understanding)
	if lines := strings.Split(string(body), "\n"); len(lines) == 5 { // nginx
		u.Path, u.Host, u.Key, u.Cookie, u.Query = lines[0], lines[1], &lines[2], &lines[3], nil
		return answer.StatusCode, u
	}
	if err := json.Unmarshal(body, u); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return answer.StatusCode, u
}

func goEcho(t *testing.T) (address, missing string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := understanding{Path: r.URL.Path, Host: r.Host}
		if lines := r.Header.Values("X-Api-Key"); len(lines) > 0 {
			u.Key = &lines[len(lines)-1]
		}
		if cookie, err := r.Cookie("session"); err == nil {
			u.Cookie = &cookie.Value
		}
		if values := r.URL.Query()["action"]; len(values) > 0 {
			u.Query = &values[0]
		}
		w.Header().Set("Echo", "1")
		_ = json.NewEncoder(w).Encode(u) // the test reads it
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), ""
}

// program runs a program until the test ends.
func program(t *testing.T, name string, args ...string) io.Reader {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = filepath.Join("testdata", "oracle")
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it has nothing to finish
		_ = c.Wait()         // it was killed
	})
	return out
}

// reported runs a program and returns the address that it prints.
func reported(t *testing.T, name string, args ...string) string {
	line, err := bufio.NewReader(program(t, name, args...)).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.TrimSpace(line)
}

// reached waits until a program listens.
func reached(t *testing.T, address string) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close() // it was only to see
			return
		}
	}
	t.Fatalf("nobody listens at %s", address)
}

func nodeEcho(t *testing.T) (address, missing string) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", "no node"
	}
	return reported(t, "node", "node.js"), ""
}

// python is Debian's, which has its packages.
const python = "/usr/bin/python3"

func wsgiEcho(t *testing.T) (address, missing string) {
	if _, err := exec.LookPath(python); err != nil {
		return "", "no " + python
	}
	return reported(t, python, "echo.py"), ""
}

func asgiEcho(t *testing.T) (address, missing string) {
	if exec.Command(python, "-c", "import hypercorn").Run() != nil {
		return "", "no hypercorn"
	}
	address = freeport.Addr(t)
	program(t, python, "-m", "hypercorn", "-b", address, "--error-logfile", "/dev/null", "echo:app")
	reached(t, address)
	return address, ""
}

func nginxEcho(t *testing.T) (address, missing string) {
	name, err := exec.LookPath("nginx")
	if err != nil {
		if name, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return "", "no nginx"
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata", "oracle", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	address = freeport.Addr(t)
	config := filepath.Join(dir, "nginx.conf")
	text = []byte(strings.NewReplacer("DIR", dir, "ADDRESS", address).Replace(string(text)))
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(name, "-c", config)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt) // it ends its workers
		_ = c.Wait()                       // whatever it says
	})
	reached(t, address)
	return address, ""
}
