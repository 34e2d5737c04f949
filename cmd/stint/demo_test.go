package main_test

import (
	"bufio"
	"bytes"
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
	"github.com/stint-dev/stint/service/rules"
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

// TestDemoGuide pastes each line that the demo tells to paste. SIGTERM ends it
// well, and its log says who was denied without saying who that is.
func TestDemoGuide(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, demoArgs...)
	child.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
	var log bytes.Buffer
	child.Stderr = &log
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	guide := readGuide(t, out)
	lines := commands(guide)
	// What a line answers, and, where that took longer than a limit needs to let one
	// more pass, what it may answer.
	wants := []struct {
		at     string
		within time.Duration
		later  string
	}{
		{`^401\n429\n429\n429\n$`, 2 * time.Second, `^(401\n|429\n){4}$`},
		{`HTTP/1.1 429 (.*\r\n)*Ratelimit: "login/gcra:2s";r=0;t=[12]\r\n(.*\r\n)*Retry-After: [12]\r\n(.*\r\n)*{"type":.*"violated-policies":\["login/gcra:2s"\]}\n$`, 2 * time.Second, `HTTP/1.1 4(01|29) `},
		{`^(200\n){5}(429\n){2}$`, 12 * time.Second, `^(200\n){5}(200\n|429\n){2}$`},
		{`^HTTP/1.1 200 (.*\r\n)*Ratelimit: "api";r=99;t=60\r\n(.*\r\n)*{"items":`, time.Hour, ""},
		{`^(begun at .*\n){4}$`, time.Hour, ""},
		{`^{"allowed":true,"rule":"login",.*"remaining":0,`, time.Hour, ""},
	}
	if len(lines) != len(wants) {
		t.Fatalf("%d lines to paste, want %d: %q", len(lines), len(wants), lines)
	}
	first := time.Now()
	for i, one := range wants {
		begun := time.Now()
		got, err := exec.CommandContext(t.Context(), "sh", "-c", lines[i]).Output()
		took := time.Since(begun)
		if i == 1 { // after what the line before was let through
			took = time.Since(first)
		}
		want := one.at
		if took >= one.within {
			want = one.later
		}
		if err != nil || !regexp.MustCompile(want).Match(got) {
			t.Errorf("%s\nanswers %q (%v), want %s", lines[i], got, err, want)
		}
		if strings.Contains(lines[i], "/report") && took < 3*time.Second {
			t.Errorf("%s\ntook %v: the fourth report starts three seconds after the first", lines[i], took)
		}
	}
	if page := regexp.MustCompile(`http://\S+/ui/`).FindString(guide); page == "" {
		t.Errorf("the guide names no page of operators:\n%s", guide)
	} else if shown, err := exec.CommandContext(t.Context(), "curl", "-s", "-L", page, strings.TrimSuffix(page, "ui/")+"v1/top").Output(); err != nil ||
		!strings.Contains(string(shown), "<title>") || !strings.Contains(string(shown), `"rule":"login"`) {
		t.Errorf("%s: %v, %.300s", page, err, shown)
	}
	if err := child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, &log)
	}
	for _, want := range []string{"msg=denied interface=proxy rule=login", "msg=stopping"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, &log)
		}
	}
	for _, secret := range []string{"anna", "127.0.0.1", "192.0.2.7"} {
		if strings.Contains(regexp.MustCompile(`(?m)^.*msg=listening .*$`).ReplaceAllString(log.String(), ""), secret) {
			t.Errorf("%q in the log:\n%s", secret, &log)
		}
	}
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

// TestReadmeRules reads the rules that README.md tells to write.
func TestReadmeRules(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "```yaml\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("no rules")
	}
	f, err := rules.Decode("README.md", []byte(block))
	if err != nil || len(f.Warnings) > 0 {
		t.Errorf("%v, %+v", err, f)
	}
}
