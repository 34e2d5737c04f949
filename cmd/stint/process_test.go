package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// A running is stint in a process of its own, which serves; X-Api-Key identifies the
// clients of those that test operators.
type running struct {
	t            testing.TB
	name         string // its command
	process      *exec.Cmd
	ended        chan error
	front, admin string // the URLs for clients and for operators
	client       *http.Client

	mu   sync.Mutex
	said bytes.Buffer
	read int // of the log, by next
}

// Write takes what the process says.
func (p *running) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func (p *running) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// onBoth runs a test for stint serve and, unless it is to be short, for stint proxy. start
// starts one.
func onBoth(t *testing.T, test func(t *testing.T, start func(args ...string) *running)) {
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "behind") }))
	t.Cleanup(behind.Close)
	for name, flags := range map[string][]string{
		"serve": {"--http", "127.0.0.1:0"}, "proxy": {"--listen", "127.0.0.1:0", "--upstream", behind.URL},
	} {
		if name == "proxy" && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			test(t, func(args ...string) *running {
				t.Helper()
				return startStint(t, append(append([]string{name, "--admin", "127.0.0.1:0"}, flags...), args...)...)
			})
		})
	}
}

// storePatience gives a store more time than the 15 ms that it has unless it is
// said: that is for a test to say which is about them.
const storePatience = "STINT_STORE_TIMEOUT=5s"

// launch starts stint with arguments. Its store may take its time.
func launch(t testing.TB, args ...string) *running {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(self, args...)
	process.Env = append([]string{storePatience}, append(os.Environ(), "STINT_TEST_MAIN=1")...)
	return begin(t, args[0], process)
}

// begin starts a process that ends with the test, and keeps what it says.
func begin(t testing.TB, name string, process *exec.Cmd) *running {
	t.Helper()
	p := &running{t: t, name: name, process: process, ended: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	p.process.Stderr = p
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.process.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		_ = p.process.Process.Kill() // it has ended, unless the test failed
		for range p.ended {          // else it may write into a directory that is about to be removed
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.log())
		}
	})
	return p
}

// startStint starts a command that listens, and waits until it does.
func startStint(t testing.TB, args ...string) *running {
	t.Helper()
	return launch(t, args...).listening()
}

// startServe starts stint serve.
func startServe(t testing.TB, args ...string) *running {
	t.Helper()
	return startStint(t, append([]string{"serve"}, args...)...)
}

// operated starts stint serve with an address for operators.
func operated(t testing.TB, args ...string) *running {
	t.Helper()
	return startServe(t, append([]string{"--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
}

// listening waits until it listens, and notes where.
func (p *running) listening() *running {
	p.t.Helper()
	p.front = "http://" + p.at("msg=listening address")
	if m := regexp.MustCompile(`msg=listening admin=(\S+)`).FindStringSubmatch(p.log()); m != nil {
		p.admin = "http://" + m[1]
	}
	return p
}

// host returns the address of a URL.
func host(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return address
}

// here returns the URL of this machine for one of a process that listens on all addresses.
func here(scheme, url string) string {
	return scheme + "://127.0.0.1" + url[strings.LastIndexByte(url, ':'):]
}

// accept listens until the test ends, and serves each connection.
func accept(t testing.TB, serve func(net.Conn)) (address string) {
	t.Helper()
	l := freeport.Listen(t)
	var open sync.WaitGroup
	t.Cleanup(func() { l.Close(); open.Wait() })
	open.Go(func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			open.Go(func() { serve(conn) })
		}
	})
	return l.Addr().String()
}

// between listens, and passes on what clients and a server say to each other: to and
// from are what copies, until an end.
func between(t testing.TB, server string, to, from func(io.Writer, io.Reader)) (address string) {
	t.Helper()
	return accept(t, func(client net.Conn) {
		defer client.Close()
		conn, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		done := make(chan struct{})
		go func() { defer close(done); from(client, conn); client.Close() }()
		to(conn, client)
		conn.Close()
		<-done
	})
}

// copied copies what arrives as it is.
func copied(to io.Writer, from io.Reader) { _, _ = io.Copy(to, from) }

// waitFor waits until the log has a text.
func (p *running) waitFor(text string) {
	p.t.Helper()
	await.Until(p.t, fmt.Sprintf("%s says %q", p.name, text), func() bool { return strings.Contains(p.log(), text) })
}

// next waits for a line with a text behind the last line that it returned.
func (p *running) next(text string) (line string) {
	p.t.Helper()
	await.Until(p.t, fmt.Sprintf("%s says %q", p.name, text), func() bool {
		for one := range strings.Lines(p.log()[p.read:]) {
			if !strings.HasSuffix(one, "\n") {
				break // it is being written
			}
			p.read += len(one)
			if line = strings.TrimSuffix(one, "\n"); strings.Contains(line, text) {
				return true
			}
		}
		return false
	})
	return line
}

// at returns the address in the next line with a text.
func (p *running) at(text string) string {
	p.t.Helper()
	return regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.next(text))[1]
}

// warnings returns how many lines of its log warn, but for those of a busy store that did
// not answer in two seconds.
func (p *running) warnings() (n int) {
	for line := range strings.Lines(p.log()) {
		if strings.Contains(line, "level=WARN") && !strings.Contains(line, "the store does not answer") {
			n++
		}
	}
	return n
}

func (p *running) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.process.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// end sends a signal and waits for the end.
func (p *running) end(sig syscall.Signal) error {
	p.t.Helper()
	p.signal(sig)
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
		return nil
	}
}

// stop ends it by SIGTERM, and compares what it says at the end.
func (p *running) stop(counts string) {
	p.t.Helper()
	if err := p.end(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	p.next("msg=stopping")
	if line := p.next("msg=stopped"); !strings.HasSuffix(line, counts) {
		p.t.Errorf("%s; want %s", line, counts)
	}
	for _, secret := range []string{"192.0.2.7", serveToken, operatorToken} {
		if strings.Contains(p.log(), secret) {
			p.t.Errorf("%s is in the log", secret)
		}
	}
}

// do sends an HTTP request, whose body is JSON unless a header says otherwise, and returns
// the answer and its body.
func (p *running) do(method, url, body string, headers map[string]string) (*http.Response, string) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.t.Context(), patience)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp, string(answer)
}

// call sends an HTTP request, and returns the status and the body of the answer.
func (p *running) call(method, url, body string, headers map[string]string) (int, string) {
	p.t.Helper()
	resp, answer := p.do(method, url, body, headers)
	return resp.StatusCode, answer
}

// bearer is the header of a token, if there is one.
func bearer(token string) map[string]string {
	if token == "" {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + token}
}

// ask posts a body as a client, and returns the status and the answer.
func (p *running) ask(path, body, token string) (int, string) {
	p.t.Helper()
	return p.call(http.MethodPost, p.front+path, body, bearer(token))
}

// auth asks at /auth about GET of a path by an address.
func (p *running) auth(path, ip string) *http.Response {
	p.t.Helper()
	resp, _ := p.do(http.MethodGet, p.front+"/auth", "", map[string]string{
		"X-Original-Method": "GET", "X-Original-Uri": path, "X-Original-Host": "a.example", "X-Forwarded-For": ip,
	})
	return resp
}

// want asks for the address 192.0.2.7, and compares status and answer.
func (p *running) want(path, token string, status int, text string) {
	p.t.Helper()
	body := `{"attributes":{"ip":"192.0.2.7"}}`
	if path == "/v1/refund" {
		body = `{"attributes":{"ip":"192.0.2.7"},"cost":1}`
	}
	if got, answer := p.ask(path, body, token); got != status || !strings.Contains(answer, text) {
		p.t.Errorf("%s: %d %s; want %d and %s", path, got, answer, status, text)
	}
}

// check asks about a path, and returns the status.
func (p *running) check(path string) int {
	p.t.Helper()
	status, _ := p.ask("/v1/check", fmt.Sprintf(`{"attributes":{"path":%q,"ip":"192.0.2.7"}}`, path), "")
	return status
}

// checks asks about a path several times, and returns the statuses.
func (p *running) checks(path string, n int) string {
	p.t.Helper()
	all := make([]int, n)
	for i := range all {
		all[i] = p.check(path)
	}
	return fmt.Sprint(all)
}

// request asks whether a client may, and returns the status.
func (p *running) request(client string) int {
	p.t.Helper()
	method, path, body := http.MethodGet, "/", ""
	if p.name == "serve" {
		method, path, body = http.MethodPost, "/v1/check", fmt.Sprintf(`{"attributes":{"method":"GET","path":"/","header.x-api-key":%q}}`, client)
	}
	status, _ := p.call(method, p.front+path, body, map[string]string{"X-Api-Key": client})
	return status
}

// requests sends several requests and returns how many passed.
func (p *running) requests(client string, n int) (passed int) {
	p.t.Helper()
	for range n {
		switch status := p.request(client); status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests, http.StatusForbidden:
		default:
			p.t.Fatalf("status %d", status)
		}
	}
	return passed
}

// metric returns the value of a metric, "" if it is not there.
func (p *running) metric(name string) string {
	p.t.Helper()
	_, text := p.call(http.MethodGet, p.front+"/metrics", "", nil)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// counts waits until the process reports that n processes share its store.
func (p *running) counts(n int) { p.becomes("stint_store_nodes", fmt.Sprint(n)) }

// becomes waits until a metric has a value.
func (p *running) becomes(name, value string) {
	p.t.Helper()
	await.Until(p.t, name+" is "+value, func() bool { return p.metric(name) == value })
}

// stint runs a command of operators against the address for them.
func (p *running) stint(args ...string) (status int, out, errs string) {
	p.t.Helper()
	return runStint(p.t, append(args, "--server", p.admin)...)
}

// runStint runs a command in this process.
func runStint(t testing.TB, args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = main.Run(t.Context(), args, strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

// must runs a command that succeeds, and returns what it prints.
func must(t testing.TB, args ...string) string {
	t.Helper()
	status, out, errs := runStint(t, args...)
	if status != 0 {
		t.Fatalf("stint %s: exit %d %s", strings.Join(args, " "), status, errs)
	}
	return strings.TrimSpace(out)
}

// published puts rules into a database, and returns a token of a role there.
func published(t testing.TB, url, rules, role string) (token string) {
	t.Helper()
	must(t, "rules", "migrate", "--rules", url)
	must(t, "rules", "push", disk.Write(t, t.TempDir()+"/stint.yaml", rules), "--rules", url)
	return must(t, "token", "make", "pager", "--role", role, "--rules", url)
}

// decode reads JSON that a command printed.
func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}
