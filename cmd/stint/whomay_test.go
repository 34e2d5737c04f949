package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// A visitor is a client and its roles: "" may do nothing. Where rules are in a
// database, a client without a name there may look at three paths alone.
type visitor struct {
	who, token     string
	file, database string // the role
}

// visitors returns everybody there is, with tokens in files, and the flags that name
// those.
func visitors(t *testing.T) (all []visitor, flags []string) {
	t.Helper()
	const asker, operator = "asker-0123456789abcdef", "operator-0123456789abcdef"
	dir := t.TempDir()
	operators := writeFile(t, dir+"/operators", operator+"\n")
	make := func(name, role string, more ...string) string {
		return must(t, append([]string{"token", "make", name, "--role", role, "--file", operators}, more...)...)
	}
	all = []visitor{
		{"nobody", "", "viewer", "looks"},
		{"a stranger", "stranger-0123456789abcdef", "", ""},
		{"a line of --token-file", asker, "viewer", "looks"},
		{"a line of --operator-token-file", operator, "operator", "looks"},
		{"a viewer", make("vera", "viewer"), "viewer", "viewer"},
		{"an operator", make("otto", "operator", "--for", "1d"), "operator", "operator"},
		{"an admin", make("ada", "admin"), "admin", "admin"},
		{"a revoked admin", make("rita", "admin"), "", ""},
		{"an admin of yesterday", make("yves", "admin", "--for", "1d"), "", ""},
	}
	must(t, "token", "revoke", "rita", "--file", operators)
	text, err := os.ReadFile(operators)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "name=yves") {
			before, _, _ := strings.Cut(line, "until=")
			line = before + "until=" + time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) + "\n"
		}
		lines = append(lines, line)
	}
	writeFile(t, operators, strings.Join(lines, ""))
	return all, []string{"--token-file", writeFile(t, dir+"/askers", asker+"\n"), "--operator-token-file", operators}
}

// An endpoint is one of the API, with a request that can be answered, and the
// statuses of the answer where the role suffices: with rules in a file, and in a
// database.
type endpoint struct {
	method, path, body string
	least              string
	file, database     int
}

var endpoints = []endpoint{
	{"GET", "/v1/rules", "", "viewer", 200, 200},
	{"POST", "/v1/rules", `{"document":"rules: [{name: orders, key: [header.x-api-key], limits: [5/h]}]"}`, "admin", 422, 201},
	{"POST", "/v1/rules/validate", `{"document":"rules: 5"}`, "viewer", 200, 200},
	{"POST", "/v1/rules/diff", `{"document":"x\n"}`, "viewer", 200, 200},
	{"GET", "/v1/rules/history", "", "viewer", 200, 200},
	{"POST", "/v1/rules/rollback", `{"version":1}`, "admin", 422, 201},
	{"POST", "/v1/rules/accept", `{"reason":"r"}`, "admin", 422, 200},
	{"GET", "/v1/rules/list", "", "viewer", 200, 200},
	{"GET", "/v1/rule?rule=orders", "", "viewer", 200, 200},
	{"GET", "/v1/rules/schema", "", "viewer", 200, 200},
	{"PUT", "/v1/override?rule=orders&key=a", `{"limits":["9/h"]}`, "operator", 200, 200},
	{"PUT", "/v1/override?rule=orders&key=a", `{}`, "operator", 422, 422},
	{"PUT", "/v1/override?rule=orders&key=a", `{"limits":[]}`, "operator", 422, 422},
	{"GET", "/v1/override?rule=orders&key=a", "", "operator", 200, 200},
	{"GET", "/v1/overrides", "", "operator", 200, 200},
	{"POST", "/v1/overrides", "rule,key,limits\norders,a,9/h\n", "operator", 422, 200},
	{"GET", "/v1/overrides.csv", "", "operator", 200, 200},
	{"DELETE", "/v1/override?rule=orders&key=a", "", "operator", 200, 200},
	{"PUT", "/v1/block?rule=orders&key=a", `{"for":"1h"}`, "operator", 200, 200},
	{"DELETE", "/v1/block?rule=orders&key=a", "", "operator", 200, 200},
	{"GET", "/v1/plans", "", "operator", 200, 200},
	{"PUT", "/v1/plan?attribute=jwt.org&value=a", `{"plan":"pro"}`, "operator", 422, 422},
	{"GET", "/v1/plan?attribute=jwt.org&value=a", "", "operator", 404, 404},
	{"DELETE", "/v1/plan?attribute=jwt.org&value=a", "", "operator", 422, 404},
	{"GET", "/v1/nodes", "", "viewer", 200, 200},
	{"GET", "/v1/audit", "", "operator", 200, 200},
	{"GET", "/v1/tokens", "", "admin", 200, 200},
	{"POST", "/v1/tokens", `{"name":"x","role":"viewer"}`, "admin", 422, 201},
	{"DELETE", "/v1/token?name=x", "", "admin", 422, 200},
	{"POST", "/v1/inspect", `{"attributes":{"header.x-api-key":"a"}}`, "viewer", 200, 200},
	{"GET", "/v1/top", "", "viewer", 200, 200},
	{"GET", "/v1/blocked", "", "viewer", 200, 200},
	{"POST", "/v1/reset?rule=orders&key=a", `{}`, "operator", 200, 200},
	{"POST", "/v1/refund?rule=orders&key=a", `{"cost":1}`, "operator", 200, 200},
	{"POST", "/v1/reveal", `{"rule":"orders","key_hash":"0"}`, "operator", 404, 404},
	{"POST", "/v1/undo", `{"act":999999}`, "operator", 422, 422},
	{"POST", "/v1/rehearse", `{"document":"rules: [{name: orders, key: [header.x-api-key], limits: [4/h]}]"}`, "viewer", 200, 200},
}

// TestFileRoles tries every endpoint of the API as everybody who may have a token
// in a file, or none, with rules in a file and in a database.
func TestFileRoles(t *testing.T) {
	need.Time(t)
	dir := t.TempDir()
	rules := writeFile(t, dir+"/stint.yaml", operateRules)
	database := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "push", rules, "--rules", database)
	for where, source := range map[string][]string{"file": {"-c", rules}, "database": {"--rules", database}} {
		t.Run(where, func(t *testing.T) {
			all, flags := visitors(t)
			p := operated(t, append(source, flags...)...)
			p.call(http.MethodPost, p.front+"/v1/check", `{"attributes":{"header.x-api-key":"a"}}`, map[string]string{"Authorization": "Bearer " + all[3].token}) // something is recorded
			for _, e := range endpoints {
				for _, v := range all {
					role, good := v.file, e.file
					if where == "database" {
						role, good = v.database, e.database
					}
					want := wantedOf(role, &e, good)
					headers := map[string]string{"If-Match": "*", "Content-Type": "application/json"}
					if v.token != "" {
						headers["Authorization"] = "Bearer " + v.token
					}
					status, answer := p.call(e.method, p.admin+e.path, e.body, headers)
					again := e.method == "DELETE" && status == http.StatusNotFound && want == http.StatusOK // another author was there before
					if status != want && !again {
						t.Errorf("%s %s as %s: %d, want %d: %.200s", e.method, e.path, v.who, status, want, answer)
					}
				}
			}
			_, text := p.call(http.MethodGet, p.admin+"/v1/openapi.json", "", nil)
			described(t, text)
		})
	}
}

// wantedOf returns the status for a client of a role.
func wantedOf(role string, e *endpoint, good int) int {
	ranks := []string{"", "viewer", "operator", "admin"}
	switch path, _, _ := strings.Cut(e.path, "?"); {
	case role == "looks" && slices.Contains([]string{"/v1/inspect", "/v1/top", "/v1/blocked"}, path):
		return good
	case role == "" || role == "looks":
		return http.StatusUnauthorized
	case slices.Index(ranks, role) < slices.Index(ranks, e.least):
		return http.StatusForbidden
	}
	return good
}

// described finds an endpoint of the test for each one that the server describes.
func described(t *testing.T, text string) {
	t.Helper()
	var api struct {
		Paths map[string]map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(text), &api); err != nil {
		t.Fatal(err)
	}
	for path, item := range api.Paths {
		for method, about := range item {
			role := about["x-role"]
			if role == nil || role == "customer" {
				continue // it asks for tokens of its own
			}
			if !slices.ContainsFunc(endpoints, func(e endpoint) bool {
				of, _, _ := strings.Cut(e.path, "?")
				return of == path && e.method == strings.ToUpper(method) && e.least == role
			}) {
				t.Errorf("%s %s for %v is described and was not tried", method, path, role)
			}
		}
	}
}

// TestProbesFindRoom fills the connections of operators with browsers that have
// asked and say nothing more: a probe finds room all the same, since those that are
// idle are let go.
func TestProbesFindRoom(t *testing.T) {
	need.Time(t)
	p := operated(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", operateRules))
	address := strings.TrimPrefix(p.admin, "http://")
	for range 32 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: %s\r\n\r\n", address)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
	}
	await.Until(t, "a probe is answered", func() bool {
		var out bytes.Buffer
		return main.Run(t.Context(), []string{"health", p.admin}, strings.NewReader(""), &out, &out) == 0
	})
}

// TestNeverPasses lists who can never pass: whom a rule blocks, and whose request
// costs more than a limit holds. A block that an operator gave is listed once.
func TestNeverPasses(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", writeFile(t, t.TempDir()+"/stint.yaml", `rules:
  - name: banned
    match: {header.x-api-key: banned}
    block: true
  - name: orders
    key: [header.x-api-key]
    limits: [5 per hour]
    cost: {header: x-cost, default: 1}
`))
		if status, _, errs := p.stint("block", "far", "--rule", "orders", "--reason", "abuse"); status != 0 {
			t.Fatal(errs)
		}
		for client, cost := range map[string]string{"banned": "1", "large": "9", "far": "1", "fine": "1"} {
			if p.name == "proxy" {
				p.call(http.MethodGet, p.front+"/", "", map[string]string{"X-Api-Key": client, "X-Cost": cost})
			} else {
				p.call(http.MethodPost, p.front+"/v1/check", fmt.Sprintf(`{"attributes":{"method":"GET","path":"/","header.x-api-key":%q,"header.x-cost":%q}}`, client, cost), nil)
			}
		}
		_, out, errs := p.stint("block", "list", "--json")
		var all []string
		for _, b := range decode[[]struct {
			Rule, Key, Why string
			Until          *time.Time
		}](t, out) {
			all = append(all, fmt.Sprint(b.Rule, " ", b.Key, " ", b.Why, " ", b.Until == nil))
		}
		if want := []string{"banned  never true", "orders large never true", "orders far block true"}; !slices.Equal(all, want) {
			t.Errorf("%q, want %q %s", all, want, errs)
		}
		if _, out, _ := p.stint("block", "list"); !strings.Contains(out, "orders large: can never pass") {
			t.Errorf("as text:\n%s", out)
		}
	})
}
