package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// secretRules name clients wherever rules can, each by a secret of its own.
const secretRules = `
rules:
  - {name: partner, match: {header.x-partner: [SECRET-a, SECRET-b], cookie.sid: SECRET-c, query.token: SECRET-d}, key: [ip], limits: [5/h]}
  - {name: either, match: [{header.x-partner: "SECRET-e*"}, {path: "/**"}], key: [ip], limits: [5/h]}
  - {name: but, unless: {query.api_key: SECRET-f}, key: [ip], limits: [5/h]}
  - {name: own, key: [ip], limits: [5/h], overrides: [{when: {header.x-api-key: SECRET-g}, limits: [9/h]}, {name: kept, when: {cookie.sid: SECRET-h}, limits: [8/h]}]}
  - {name: tiers, key: [ip], tiers: {by: header.x-tier, default: SECRET-i, plans: {SECRET-i: [5/h], SECRET-j: [1/h]}}}
  - {name: all, key: [header.x-api-key], cost: {header: x-cost, default: 1}, limits: [5/h]}
`

// TestRulesKeepSecrets asks everything that a viewer, or nobody, may ask of rules that
// name clients, also with one of the secrets in hand: no answer has another, nor does the
// page of an operator, the log, or the metrics. An operator sees them.
func TestRulesKeepSecrets(t *testing.T) {
	all, flags := visitors(t)
	p := operated(t, append([]string{"-c", disk.Write(t, t.TempDir()+"/stint.yaml", secretRules)}, flags...)...)
	const own = "SECRET-a"
	ask := func(v visitor, method, path, body string) string {
		_, answer := p.call(method, p.admin+path, body, bearer(v.token))
		return strings.ReplaceAll(answer, own, "")
	}
	for range 7 { // the rules deny, so that lists have them
		p.call(http.MethodPost, p.front+"/v1/check", `{"attributes":{"path":"/","ip":"192.0.2.1","header.x-partner":"SECRET-a","cookie.sid":"SECRET-c","query.token":"SECRET-d","header.x-api-key":"SECRET-g"}}`, bearer(all[3].token))
	}
	asked := []endpoint{
		{method: "GET", path: "/metrics"}, {method: "GET", path: "/ui/hour?rule=partner"}, {method: "GET", path: "/v1/openapi.json"}, {method: "GET", path: "/ui/session"},
		{method: "POST", path: "/v1/inspect", body: `{"attributes":{"ip":"192.0.2.1"}}`},
		{method: "POST", path: "/v1/inspect", body: `{"attributes":{"ip":"192.0.2.1","header.x-partner":"SECRET-a"}}`},
	}
	for _, rule := range []string{"partner", "either", "but", "own", "tiers", "all"} {
		asked = append(asked, endpoint{method: "GET", path: "/v1/rule?rule=" + rule})
	}
	for _, e := range endpoints {
		if e.least == "viewer" {
			asked = append(asked, e)
		}
	}
	seen := ""
	for _, e := range asked {
		for _, v := range all {
			answer := ask(v, e.method, e.path, e.body)
			if clear := v.file == "operator" || v.file == "admin"; clear {
				seen += answer
				if !strings.HasPrefix(e.path, "/v1/inspect") && !strings.HasPrefix(e.path, "/v1/rule?") {
					continue
				}
				answer = ask(v, e.method, "/ui"+e.path, e.body)
				if strings.HasSuffix(e.path, "rule=partner") && !strings.Contains(answer, "may be secrets; stint inspect and GET /v1/rule show them") {
					t.Errorf("the page does not say what it leaves out, why, and where that is: %s", answer)
				}
			}
			if at := strings.Index(answer, "SECRET"); at >= 0 {
				t.Errorf("%s %s %s as %s: …%.200s", e.method, e.path, e.body, v.who, answer[max(0, at-100):])
			}
		}
	}
	for _, letter := range "bcdefghij" {
		if !strings.Contains(seen, fmt.Sprintf("SECRET-%c", letter)) {
			t.Errorf("no operator has seen SECRET-%c", letter)
		}
	}
	if strings.Contains(p.log(), "SECRET") {
		t.Error("the log has a secret")
	}
}

// TestFaultsKeepSecrets publishes rules that cannot be in force, whose error quotes a secret:
// an operator sees it, and no viewer.
func TestFaultsKeepSecrets(t *testing.T) {
	all, flags := visitors(t)
	url := "sqlite:" + t.TempDir() + "/rules.db"
	must(t, "rules", "push", disk.Write(t, t.TempDir()+"/stint.yaml", secretRules), "--rules", url)
	p := operated(t, append([]string{"--rules", url, "--rules-copy", "none"}, flags...)...)
	db := dbtest.Open(t, url, rulesdb.Options{})
	if _, err := db.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "bad.yaml", Document: []byte("rules: [{name: all, key: [ip], limits: [SECRET]}]")}); err != nil {
		t.Fatal(err)
	}
	p.waitFor("what is held stays in force")
	for _, e := range []endpoint{
		{method: "GET", path: "/v1/nodes"}, {method: "GET", path: "/v1/top"}, {method: "GET", path: "/v1/rule?rule=but"},
		{method: "POST", path: "/v1/inspect", body: `{"attributes":{"ip":"192.0.2.1"}}`},
	} {
		for _, v := range all {
			_, answer := p.call(e.method, p.admin+e.path, e.body, bearer(v.token))
			clear := v.database == "operator" || v.database == "admin"
			if quoted := strings.Contains(answer, `\"SECRET\"`); quoted != clear {
				t.Errorf("%s %s as %s: %s", e.method, e.path, v.who, answer)
			}
		}
	}
}

// TestWhereKeysStand looks for a client's key in all that both programs write: it
// stands in clear in the state file alone, which its owner alone may read.
func TestWhereKeysStand(t *testing.T) {
	const key = "a-customer-of-ours-and-no-other"
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		state, snapshot, token := dir+"/acts", dir+"/snapshot", "0123456789-token-of-an-operator"
		p := start("-c", disk.Write(t, dir+"/stint.yaml", operateRules), "--state", state, "--snapshot", snapshot,
			"--operator-token-file", disk.Write(t, dir+"/tokens", token+"\n"))
		operator := bearer(token)
		if n := p.requests(key, 6); n != 4 {
			t.Fatalf("%d passed, want 4", n)
		}
		if status, body := p.call(http.MethodPut, p.admin+"/v1/block?rule=orders&key="+key, `{"for":"1h"}`, operator); status != http.StatusOK {
			t.Fatalf("a block: %d %s", status, body)
		}
		for _, one := range []struct {
			path    string
			headers map[string]string
			shown   bool
		}{{"/metrics", operator, false}, {"/v1/top", nil, false}, {"/v1/top", operator, true}} {
			if status, body := p.call(http.MethodGet, p.admin+one.path, "", one.headers); status != http.StatusOK || strings.Contains(body, key) != one.shown {
				t.Errorf("%s %v: %d %s", one.path, one.headers, status, body)
			}
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if strings.Contains(p.log(), key) {
			t.Error("the log has the key")
		}
		for path, shown := range map[string]bool{state: true, snapshot: false} {
			text, err := os.ReadFile(path)
			if err != nil || strings.Contains(string(text), key) && !shown {
				t.Errorf("%s: %v, or it has the key", path, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", path, info.Mode(), err)
			}
		}
	})
}

// TestNoEscapes has others write what does something to a terminal wherever they may: no
// command that shows it to a person writes it as it is, nor a line that they made up.
func TestNoEscapes(t *testing.T) {
	const evil = "\x1b[2Jgone\r\a\u202e\u009b31m\nnode forged"
	dir := t.TempDir()
	url := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "push", disk.Write(t, dir+"/stint.yaml", operateRules), "--rules", url)
	must(t, "block", "partner-1", "--rule", "orders", "--rules", url)
	db := dbtest.Open(t, url, rulesdb.Options{Node: "n" + evil})
	if err := db.Report(t.Context(), rulesdb.Node{Error: evil}); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, url, "UPDATE stint_overrides SET reason = CAST(x'1b5b324a0a6e6f64652078' AS TEXT), author = CAST(x'1b5b324a' AS TEXT)",
		"UPDATE stint_audit SET subject = CAST(x'1b5b324a0a6e6f64652078' AS TEXT), now = CAST(x'1b5b324a' AS TEXT), reason = CAST(x'1b5b324a' AS TEXT), act = CAST(x'1b5b324a' AS TEXT)")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Stint-Admin", "1")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(`{"detail":"no \u001b[2J"}`))
	}))
	defer server.Close()
	for _, args := range [][]string{
		{"rules", "nodes", "--rules", url}, {"override", "list", "--rules", url}, {"override", "get", "orders", "partner-1", "--rules", url},
		{"audit", "--rules", url}, {"audit", "undo", "2", "--rules", url}, {"top", "--server", server.URL}, {"block", "list", "--server", server.URL}, {"rules", "nodes", "--server", server.URL},
	} {
		out := session{args: args}.run()
		if strings.ContainsAny(out, "\x1b\r\a\u202e\u009b") || strings.Contains(out, "\nnode ") {
			t.Errorf("%v: %q", args, out)
		}
	}
}
