package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
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
	p := launch(t, "proxy", "proxy", "-c", writeFile(t, t.TempDir()+"/stint.yaml", serveRules), "--upstream", behind.URL,
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--trusted-proxy", "127.0.0.0/8")
	p.listening()
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
		status, body := p.call(http.MethodGet, p.front, "", map[string]string{"X-Forwarded-For": test.forwarded})
		if status != test.status || test.body != "" && body != test.body {
			t.Errorf("request %d: %d %q, want %d %q", i, status, body, test.status, test.body)
		}
	}
	for path, want := range map[string]string{
		"/livez": "ok", "/readyz": "ok", "/": "/lab/", "/lab/": "<title>stint lab</title>",
		"/metrics": `stint_decisions_total{decision="denied",interface="proxy",rule="pages"} 1`,
	} {
		if status, body := p.call(http.MethodGet, p.admin+path, "", nil); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if log := p.log(); !strings.Contains(log, "msg=stopped passed=3 denied=1") || strings.Contains(log, "192.0.2") {
		t.Errorf("log:\n%s", log)
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
