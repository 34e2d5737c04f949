package main_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
)

// TestProxy runs stint proxy with a rules file and an admin address: what is
// denied, the trusted proxy's client, the metrics, and a stop.
func TestProxy(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Real-Ip"))
	}))
	defer behind.Close()
	file := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(file, []byte("rules: [{name: pages, key: [ip], limits: 2 per hour}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	status := make(chan int)
	go func() {
		defer in.Close()
		status <- main.Run(ctx, []string{
			"proxy", "-c", file, "--upstream", behind.URL, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
			"--trusted-proxy", "127.0.0.0/8", "--max-lag", "0s", // a busy machine may take a second to read a request
		}, strings.NewReader(""), io.Discard, in)
	}()
	var admin, front string
	lines := bufio.NewReader(out)
	for front == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`msg=listening (admin|address)=(\S+)`).FindStringSubmatch(line); m != nil {
			if m[1] == "admin" {
				admin = m[2]
			} else {
				front = m[2]
			}
		}
	}
	log := make(chan string)
	go func() {
		rest, _ := io.ReadAll(lines) // ends with the pipe
		log <- string(rest)
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(url, forwarded string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if forwarded != "" {
			r.Header.Set("X-Forwarded-For", forwarded)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	for i, test := range []struct {
		forwarded string
		status    int
		body      string
	}{
		{"192.0.2.7", 200, "192.0.2.7"},
		{"6.6.6.6, 192.0.2.7", 200, "192.0.2.7"},
		{"6.6.6.7, 192.0.2.7", 429, ""},
		{"192.0.2.8", 200, "192.0.2.8"},
	} {
		status, body := ask("http://"+front, test.forwarded)
		if status != test.status || test.body != "" && body != test.body {
			t.Errorf("request %d: %d %q, want %d %q", i, status, body, test.status, test.body)
		}
	}
	for path, want := range map[string]string{
		"/livez": "ok", "/readyz": "ok", "/": "/lab/", "/lab/": "<title>stint lab</title>",
		"/metrics": `stint_decisions_total{decision="denied",interface="proxy",rule="pages"} 1`,
	} {
		if status, body := ask("http://"+admin+path, ""); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	stop()
	if s := <-status; s != 0 {
		t.Errorf("exit status %d", s)
	}
	if rest := <-log; !strings.Contains(rest, "msg=stopped passed=3 denied=1") || strings.Contains(rest, "192.0.2") {
		t.Errorf("log:\n%s", rest)
	}
}

func TestListenBusy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var errs strings.Builder
	status := main.Run(t.Context(), []string{
		"proxy", "--upstream", "http://127.0.0.1:9000", "--limit", "1/s", "--listen", ln.Addr().String(),
	}, strings.NewReader(""), io.Discard, &errs)
	want := fmt.Sprintf("stint proxy: --listen %s: something else listens there already", ln.Addr())
	if status != 1 || !strings.HasPrefix(errs.String(), want) {
		t.Errorf("exit status %d, %q, want 1, %q", status, &errs, want)
	}
}
