package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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
	p := operated(t, append([]string{"-c", writeFile(t, t.TempDir()+"/stint.yaml", secretRules)}, flags...)...)
	const own = "SECRET-a"
	ask := func(v visitor, method, path, body string) string {
		headers := map[string]string{"Content-Type": "application/json"}
		if v.token != "" {
			headers["Authorization"] = "Bearer " + v.token
		}
		_, answer := p.call(method, p.admin+path, body, headers)
		return strings.ReplaceAll(answer, own, "")
	}
	for range 7 { // the rules deny, so that lists have them
		p.call(http.MethodPost, p.front+"/v1/check", `{"attributes":{"path":"/","ip":"192.0.2.1","header.x-partner":"SECRET-a","cookie.sid":"SECRET-c","query.token":"SECRET-d","header.x-api-key":"SECRET-g"}}`, map[string]string{"Authorization": "Bearer " + all[3].token})
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
	must(t, "rules", "push", writeFile(t, t.TempDir()+"/stint.yaml", secretRules), "--rules", url)
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
			_, answer := p.call(e.method, p.admin+e.path, e.body, map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + v.token})
			clear := v.database == "operator" || v.database == "admin"
			if quoted := strings.Contains(answer, `\"SECRET\"`); quoted != clear {
				t.Errorf("%s %s as %s: %s", e.method, e.path, v.who, answer)
			}
		}
	}
}
