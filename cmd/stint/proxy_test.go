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
	"strings"
	"syscall"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
)

// startDemo runs the program as a child process and returns what it says to
// try, line by line.
func startDemo(t *testing.T, args ...string) (child *exec.Cmd, guide []string, log *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child = exec.CommandContext(t.Context(), self, append([]string{"proxy", "--demo", "--listen", "127.0.0.1:0"}, args...)...)
	child.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
	log = new(bytes.Buffer)
	child.Stderr = log
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		guide = append(guide, strings.TrimSpace(lines.Text()))
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			return child, guide, log
		}
	}
	t.Fatalf("the demo ended: %v\n%s", child.Wait(), log)
	return nil, nil, nil
}

// Each line that the demo tells to paste works when pasted, and SIGTERM ends
// it well.
func TestDemoGuide(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	child, guide, log := startDemo(t, "--limit", "5/h")
	var shell []string
	for _, line := range guide {
		if strings.HasPrefix(line, "for ") || strings.HasPrefix(line, "curl ") {
			shell = append(shell, line)
		}
	}
	if len(shell) != 3 {
		t.Fatalf("%d lines to try in %q", len(shell), guide)
	}
	for i, want := range []string{
		"data: 1 of 5\n\ndata: 2 of 5\n\ndata: 3 of 5\n\ndata: 4 of 5\n\ndata: 5 of 5\n\n",
		strings.Repeat("200\n", 4) + strings.Repeat("429\n", 4),
		"HTTP/1.1 429 Too Many Requests\r\n",
	} {
		got, err := exec.CommandContext(t.Context(), "sh", "-c", shell[i]).Output()
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s\nanswers %q (%v), want %q", shell[i], got, err, want)
		}
	}
	if err := child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log)
	}
	for _, want := range []string{"msg=listening", "msg=stopping", "msg=stopped passed=5 denied=13"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}

// The demo in this process: started, asked, told to stop, nothing left over.
func TestDemoStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	status := make(chan int)
	go func() {
		defer in.Close()
		status <- main.Run(ctx, []string{"proxy", "--demo", "--listen", "127.0.0.1:0"}, strings.NewReader(""), in, io.Discard)
	}()
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the pipe
	address, rest, _ := strings.Cut(strings.TrimPrefix(first, "http://"), "/")
	if !strings.HasPrefix(rest, " now allows 5/10s to each client.") {
		t.Errorf("the demo says %q", first)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", address)
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "Hello from behind stint.") {
		t.Errorf("the demo answers %q (%v)", answer, err)
	}
	stop()
	if s := <-status; s != 0 {
		t.Errorf("exit status %d", s)
	}
}

func TestListenBusy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var errs strings.Builder
	status := main.Run(t.Context(), []string{"proxy", "--demo", "--listen", ln.Addr().String()}, strings.NewReader(""), io.Discard, &errs)
	want := fmt.Sprintf("stint proxy: --listen %s: something else listens there already", ln.Addr())
	if status != 1 || !strings.HasPrefix(errs.String(), want) {
		t.Errorf("exit status %d, %q, want 1, %q", status, &errs, want)
	}
}
