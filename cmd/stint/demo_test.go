package main_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
)

var demoArgs = []string{"serve", "--demo", "--http", "127.0.0.1:0", "--demo-listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}

// readGuide returns what a demo says to try, until it has said all.
func readGuide(t *testing.T, out io.Reader) string {
	t.Helper()
	var guide strings.Builder
	lines, last := bufio.NewScanner(out), false
	for !last && lines.Scan() {
		last = strings.HasPrefix(lines.Text(), "  stint proxy ")
		guide.WriteString(lines.Text() + "\n")
		if utf8.RuneCountInString(lines.Text()) > 80 || strings.TrimRight(lines.Text(), " ") != lines.Text() {
			t.Errorf("longer than 80 columns, or spaces at the end: %q", lines.Text())
		}
	}
	if !last {
		t.Fatalf("the demo says no more than\n%s", guide.String())
	}
	return guide.String()
}

// commands returns the lines of a guide that are to be pasted.
func commands(guide string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^  (curl (?:.*\\\n)*.*)$`).FindAllStringSubmatch(guide, -1) {
		all = append(all, m[1])
	}
	return all
}

// A pasted line of a guide, and what it answers: where that took longer than a limit needs to
// let one more pass, what it may answer later.
type pasted struct {
	at     string
	within time.Duration
	later  string
}

// TestDemoGuide pastes each line that the demo tells to paste. SIGTERM ends it
// well, and its log says who was denied without saying who that is.
func TestDemoGuide(t *testing.T) {
	need.Time(t)
	need.Program(t, "curl")
	p, guide := startDemo(t, demoArgs...)
	lines := paste(t, guide, []pasted{
		{`^401\n429\n429\n429\n$`, 2 * time.Second, `^(401\n|429\n){4}$`},
		{`HTTP/1.1 4(29 (.*\r\n)*Ratelimit: "login/gcra:2s";r=0;t=[12]\r\n(.*\r\n)*Retry-After: [12]\r\n(.*\r\n)*{"type":.*"violated-policies":\["login/gcra:2s"\]}\n$|01 )`, time.Hour, ""},
		{`^(200\n){5}(429\n){2}$`, 12 * time.Second, `^(200\n){5}(200\n|429\n){2}$`},
		{`^HTTP/1.1 200 (.*\r\n)*Ratelimit: "api";r=99;t=60\r\n(.*\r\n)*{"items":`, time.Hour, ""},
		{`^(begun at .*\n){4}$`, time.Hour, ""},
		{`^{"allowed":true,"rule":"login",.*"remaining":0,`, time.Hour, ""},
	})
	if took := lines[4]; took < 3*time.Second {
		t.Errorf("reports took %v: the fourth starts three seconds after the first", took)
	}
	if page := regexp.MustCompile(`http://\S+/ui/`).FindString(guide); page == "" {
		t.Errorf("the guide names no page of operators:\n%s", guide)
	} else if shown, err := exec.CommandContext(t.Context(), "curl", "-s", "-L", page, strings.TrimSuffix(page, "ui/")+"v1/top").Output(); err != nil ||
		!strings.Contains(string(shown), "<title>") || strings.Contains(string(shown), `"node":""`) || !strings.Contains(string(shown), `"rule":"login"`) {
		t.Errorf("%s: %v, %.300s", page, err, shown)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"msg=denied interface=proxy rule=login", "msg=stopping"} {
		if !strings.Contains(p.log(), want) {
			t.Errorf("no %q in the log:\n%s", want, p.log())
		}
	}
	for _, secret := range []string{"anna", "127.0.0.1", "192.0.2.7"} {
		if strings.Contains(regexp.MustCompile(`(?m)^.*msg=listening .*$`).ReplaceAllString(p.log(), ""), secret) {
			t.Errorf("%q in the log:\n%s", secret, p.log())
		}
	}
}

// TestDemoBudgets pastes the lines of the demo of budgets.
func TestDemoBudgets(t *testing.T) {
	need.Program(t, "curl")
	p, guide := startDemo(t, append(demoArgs, "--demo-case", "budgets")...)
	paste(t, guide, []pasted{
		{`^HTTP/1.1 200 (.*\r\n)*Ratelimit: "tokens";r=88\d;t=\d+\r\n(.*\r\n)*{"choices":.*"total_tokens":7\d}}\n$`, time.Hour, ""},
		{`^(data: {"choices":\[{"delta":.*\n\n){6}data: \[DONE\]\n\n$`, time.Hour, ""},
		{`^200\n429\n$`, 25 * time.Second, `^200\n(200|429)\n$`},
		{`"status":400,"detail":"body./model: it has no price here: there is small, large"`, time.Hour, ""},
	})
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if strings.Contains(p.log(), "WARN") {
		t.Error(p.log())
	}
}

// TestDemoRedis asks the two processes of the demo of Redis as it says: they share the limit.
func TestDemoRedis(t *testing.T) {
	need.Time(t)
	need.Program(t, "curl")
	need.Program(t, "redis-server")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sh", "../../release/demo-redis.sh")
	child.Env = append(os.Environ(), "STINT="+self, "STINT_TEST_MAIN=1", storePatience,
		"REDIS_PORT="+freeport.Port(t), "PORT_A="+freeport.Port(t), "PORT_B="+freeport.Port(t))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, guide := begin(t, "demo", child), ""
	for lines := bufio.NewScanner(out); !strings.Contains(guide, "Ctrl-C ends all three.") && lines.Scan(); {
		guide += lines.Text() + "\n"
	}
	line := regexp.MustCompile(`(?s)for port .*echo\n`).FindString(guide)
	got, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
	passed, denied := strings.Count(string(got), "200 "), strings.Count(string(got), "429 ")
	if err != nil || passed < 10 || passed > 12 || passed+denied != 16 { // one more each six seconds
		t.Errorf("%s: %v, %s\n%s", guide, err, got, p.log())
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// startDemo starts a demo in a process of its own, and returns what it says to try.
func startDemo(t *testing.T, args ...string) (p *running, guide string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, args...)
	child.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p = begin(t, "demo", child)
	return p, readGuide(t, out)
}

// paste runs the lines of a guide, and returns how long each took.
func paste(t *testing.T, guide string, wants []pasted) (took []time.Duration) {
	t.Helper()
	lines := commands(guide)
	if len(lines) != len(wants) {
		t.Fatalf("%d lines to paste, want %d: %q", len(lines), len(wants), lines)
	}
	for i, one := range wants {
		begun := time.Now()
		got, err := exec.CommandContext(t.Context(), "sh", "-c", lines[i]).Output()
		took = append(took, time.Since(begun))
		want := one.at
		if took[i] >= one.within {
			want = one.later
		}
		if err != nil || !regexp.MustCompile(want).Match(got) {
			t.Errorf("%s\nanswers %q (%v), want %s", lines[i], got, err, want)
		}
	}
	return took
}

// TestDemoStops runs the demo in this process: it starts, answers, stops, and leaves
// nothing over.
func TestDemoStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	status := make(chan int)
	go func() {
		defer in.Close()
		status <- main.Run(ctx, demoArgs, strings.NewReader(""), in, io.Discard)
	}()
	guide := readGuide(t, out)
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the pipe
	address := regexp.MustCompile(`http://(\S+)   the server`).FindStringSubmatch(guide)
	if address == nil {
		t.Fatalf("no address in\n%s", guide)
	}
	conn, err := net.Dial("tcp", address[1])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", address[1])
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "Hello from behind stint.") {
		t.Errorf("the demo answers %q (%v)", answer, err)
	}
	stop()
	if s := <-status; s != 0 {
		t.Errorf("exit status %d", s)
	}
}
