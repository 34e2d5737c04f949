package main_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// TestDoctor says what would be found, and by its status whether it would serve.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		disk.Write(t, path, text)
		return path
	}
	good := write("good.yaml", "rules:\n  - {name: a, key: [ip], limits: [\"1/h\"]}\n")
	bad := write("bad.yaml", "rules:\n  - {name: a, key: [ip], limit: [\"1/h\"]}\n")
	failures := write("failures.yaml", "rules:\n  - {name: a, key: [ip], limits: [\"1/h\"], count: {status: 401}}\n")
	tokens := write("tokens", "0123456789abcdef-secret\n")
	ln := freeport.Listen(t)
	defer ln.Close()
	taken := ln.Addr().String()
	const free = "127.0.0.1:0"
	for _, try := range []struct {
		args  string
		ill   bool
		wants []string
	}{
		{good + " --http " + free, false, []string{"ok version: stint ", "ok descriptors: room for ", "clock: 2", "ok rules: 1 rule in ", "ok store: the memory", "ok ports: --http: 127.0.0.1:0 is free", "ok exposed: --http reaches this machine alone, in clear; everyone there may ask; nobody may refund or reset", "ok ports: --grpc is off"}},
		{"--limit 1/h --http " + free, false, []string{"ok rules: one, named serve, by ip"}},
		{good + " --http " + free + " --proxy-protocol 0.0.0.0/0", false, []string{"warning proxies: --proxy-protocol: 0.0.0.0/0 is every address"}},
		{good + " --http " + free + " --trusted-proxy ::/0", false, []string{"warning proxies: --trusted-proxy: ::/0 is every address"}},
		{bad + " --http " + free, true, []string{"error rules: ", "bad.yaml:2: ", "limits"}},
		{failures + " --http " + free, true, []string{"error rules: " + failures + ":2: it goes by the response, which is not seen here; ", "/v1/reserve each try"}},
		{good + " --admin unix:/run/stint.sock", true, []string{"error ports: --admin: unix:/run/stint.sock: a Unix socket is for clients"}},
		{good + " --http " + taken, true, []string{"error ports: --http " + taken + ": something else listens there"}},
		{good + " --http " + free + " --resp :0", true, []string{"error exposed: --resp: :0 can be reached from other machines"}},
		{good + " --http " + free + " --resp :0 --operator-token-file " + tokens, false, []string{"warning exposed: --resp reaches other machines, in clear; operators may ask"}},
		{good + " --http " + free + " --store redis://127.0.0.1:1", true, []string{"error store: redis://127.0.0.1:1: "}},
		{"--http " + free, false, []string{"warning rules: none are named"}},
		{good + " --http " + free + " --admin " + free + " --operator-token-file " + tokens, false, []string{"--admin reaches this machine alone, in clear; everyone there may see metrics, the lab and how clients stand; operators may override, block, reset and undo"}},
		{"--rules sqlite:none.db --http " + free + " --admin " + free, false, []string{"tokens of the database, and those with a name, may override, block, reset and undo by their roles"}},
		{good + " --http " + free + " --admin " + free, false, []string{"everyone there may override, block, reset and undo", "ok state: what operators do is kept in " + good + ".state"}},
		{good + " --http " + free + " --admin " + free + " --state none", false, []string{"ok state: what operators do is kept in memory"}},
		{good + " --http " + free + " --admin " + free + " --state " + dir + "/none/acts", true, []string{"error state: "}},
		{good + " --http " + free + " --admin " + free + " --state /proc/acts", false, []string{"warning state: operators can change nothing: open /proc/acts", "--state FILE names a place that can be written"}},
	} {
		answer := session{args: append([]string{"doctor", "--json"}, strings.Fields(try.args)...)}.run()
		line, rest, _ := strings.Cut(answer, "\n")
		var page struct {
			Found []struct{ About, Level, What, Hint string }
		}
		if err := json.Unmarshal([]byte(line), &page); err != nil {
			t.Fatalf("%s: %v: %s", try.args, err, answer)
		}
		var all strings.Builder
		for _, s := range page.Found {
			all.WriteString(s.Level + " " + s.About + ": " + s.What + "; " + s.Hint + "\n")
		}
		if ill := strings.Contains(rest, "exit 1"); ill != try.ill {
			t.Errorf("%s: %s", try.args, answer)
		}
		for _, want := range try.wants {
			if !strings.Contains(all.String(), want) {
				t.Errorf("%s: no %q in\n%s", try.args, want, all.String())
			}
		}
		if strings.Contains(answer, "secret") {
			t.Errorf("%s shows a token: %s", try.args, answer)
		}
	}
}

// TestHealth asks a server that is ready, one that is not, and one that does not run.
func TestHealth(t *testing.T) {
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer ready.Close()
	for _, try := range []struct{ url, want string }{
		{ready.URL + "/readyz", "ok\n"},
		{ready.URL + "/other", "stderr: stint health: " + ready.URL + "/other: 503 Service Unavailable\nexit 1\n"},
		{"nowhere", "stderr: stint health: url: \"nowhere\" is no http or https URL: write http://127.0.0.1:8080/readyz\nexit 2\n"},
	} {
		if got := (session{args: []string{"health", try.url}}).run(); got != try.want {
			t.Errorf("%s: %q, want %q", try.url, got, try.want)
		}
	}
	if got := (session{args: []string{"health", "http://127.0.0.1:1/readyz"}}).run(); !strings.HasSuffix(got, "exit 1\n") {
		t.Error(got)
	}
}
