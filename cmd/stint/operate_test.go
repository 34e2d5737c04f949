package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
)

// A running is stint serve or stint proxy in a process of its own, with an
// address for operators; X-Api-Key identifies its clients.
type running struct {
	t            testing.TB
	name         string // serve or proxy
	process      *exec.Cmd
	ended        chan error
	front, admin string

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
				p := launch(t, name, append(append([]string{name, "--admin", "127.0.0.1:0"}, flags...), args...)...)
				p.listening()
				return p
			})
		})
	}
}

// storePatience gives a store more time than the 15 ms that it has unless it is
// said: that is for a test to say which is about them.
const storePatience = "STINT_STORE_TIMEOUT=5s"

// launch starts stint with arguments. Its store may take its time.
func launch(t testing.TB, name string, args ...string) *running {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(self, args...)
	process.Env = append([]string{storePatience}, append(os.Environ(), "STINT_TEST_MAIN=1")...)
	return begin(t, name, process)
}

// operated starts stint serve with an address for operators, and waits until it listens.
func operated(t testing.TB, args ...string) *running {
	t.Helper()
	p := launch(t, "serve", append([]string{"serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	p.listening()
	return p
}

// begin starts a process that ends with the test, and keeps what it says.
func begin(t testing.TB, name string, process *exec.Cmd) *running {
	t.Helper()
	p := &running{t: t, name: name, process: process, ended: make(chan error, 1)}
	p.process.Stderr = p
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.process.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		_ = p.process.Process.Kill() // it has ended, unless the test failed
		for range p.ended {          // else it may write into a directory that is about to be removed
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.log())
		}
	})
	return p
}

// listening waits until it listens, and notes where.
func (p *running) listening() {
	p.t.Helper()
	p.waitFor("msg=listening address")
	at := regexp.MustCompile(`msg=listening admin=(\S+)(?s:.*)msg=listening address=(\S+)`).FindStringSubmatch(p.log())
	p.admin, p.front = "http://"+at[1], "http://"+at[2]
}

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

// request asks whether a client may, and returns the status.
func (p *running) request(client string) int {
	p.t.Helper()
	method, url, body := http.MethodGet, p.front+"/", ""
	if p.name == "serve" {
		method, url, body = http.MethodPost, p.front+"/v1/check", fmt.Sprintf(`{"attributes":{"method":"GET","path":"/","header.x-api-key":%q}}`, client)
	}
	status, _ := p.call(method, url, body, map[string]string{"X-Api-Key": client})
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

// call sends an HTTP request with a body of JSON.
func (p *running) call(method, url, body string, headers map[string]string) (int, string) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.t.Context(), patience)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Close = true
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// stint runs a command of operators against the address for them.
func (p *running) stint(args ...string) (status int, out, errs string) {
	p.t.Helper()
	var o, e bytes.Buffer
	status = main.Run(p.t.Context(), append(args, "--server", p.admin), strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

// decode reads JSON that a command printed.
func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}
