package rulesapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
	"github.com/stint-dev/stint/service/testkit/openapi"
)

const document = "rules:\n  - name: api\n    key: [account]\n    limits: [5/m]\n" +
	"  - name: plans\n    key: [ip]\n    tiers: {by: jwt.org, default: free, plans: {free: 5/m, pro: 50/m}}\n"

// serve returns a server of the API on a database of its own with one revision,
// and a token of each role.
func serve(t *testing.T) (server *httptest.Server, db *rulesdb.DB, tokens map[string]string) {
	t.Helper()
	db = dbtest.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"), rulesdb.Options{Node: "n1"})
	if _, err := db.Publish(t.Context(), 0, rulesdb.Revision{Author: "anna", Name: "stint.yaml", Document: []byte(document)}); err != nil {
		t.Fatal(err)
	}
	if err := db.Report(t.Context(), rulesdb.Node{Since: time.Now()}); err != nil {
		t.Fatal(err)
	}
	tokens = make(map[string]string)
	for _, role := range []rulesdb.Role{rulesdb.Viewer, rulesdb.Operator, rulesdb.Admin} {
		token, err := db.NewToken(t.Context(), "anna", "the "+string(role), role, 0)
		if err != nil {
			t.Fatal(err)
		}
		tokens[string(role)] = token
	}
	server = httptest.NewServer(rulesapi.NewHandler(edit(db), rulesapi.HandlerOptions{}))
	t.Cleanup(server.Close)
	return server, db, tokens
}

// edit returns an editor of rules that are kept somewhere.
func edit(of rulesapi.Backend) *rulesapi.Editor { return rulesapi.New(of, rules.Decode, nil) }

// remote returns an editor by a server of the API, with a token.
func remote(t *testing.T, server *httptest.Server, token string) *rulesapi.Editor {
	t.Helper()
	return edit(dial(t, server, tokenFile(t, token)))
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	disk.Write(t, file, token+"\n")
	return file
}

func dial(t *testing.T, server *httptest.Server, tokenFile string) *rulesapi.Client {
	t.Helper()
	k, err := rulesapi.Dial(server.URL, tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

// ask sends a request and returns the answer as JSON.
func ask(t *testing.T, server *httptest.Server, token, method, path, match, body string) (status int, answer any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if match != "" {
		r.Header.Set("If-Match", match)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/csv") {
		return resp.StatusCode, string(text)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatalf("%s %s: %d: %v", method, path, resp.StatusCode, err)
	}
	return resp.StatusCode, answer
}

// requests has one good request for each endpoint, in an order in which they
// work one after the other.
var requests = []struct {
	method, path, query, match, body string
	least                            string
}{
	{"GET", "/v1/rules", "", "", "", "viewer"},
	{"POST", "/v1/rules", "", "*", `{"document": %q, "comment": "c"}`, "admin"},
	{"POST", "/v1/rules/validate", "", "", `{"document": "rules: 5"}`, "viewer"},
	{"POST", "/v1/rules/diff", "", "", `{"document": "x\n"}`, "viewer"},
	{"GET", "/v1/rules/history", "n=1000&before=99", "", "", "viewer"},
	{"POST", "/v1/rules/rollback", "", "*", `{"version": 1, "comment": "c"}`, "admin"},
	{"POST", "/v1/rules/accept", "", "", `{"reason": "r"}`, "admin"},
	{"PUT", "/v1/override", "rule=api&key=a", "", `{"limits": ["7/m"], "for": "1h", "reason": "r"}`, "operator"},
	{"GET", "/v1/override", "rule=api&key=a", "", "", "operator"},
	{"GET", "/v1/overrides", "rule=api&n=1", "", "", "operator"},
	{"POST", "/v1/overrides", "", "", "rule,key,limits\napi,a,5/m;50/h\n", "operator"},
	{"GET", "/v1/overrides.csv", "rule=api", "", "", "operator"},
	{"DELETE", "/v1/override", "rule=api&key=a&reason=r", "", "", "operator"},
	{"PUT", "/v1/block", "rule=api&attribute=account%3Da%0f", "", `{"for": "10m"}`, "operator"},
	{"DELETE", "/v1/block", "rule=api&key=a%0f", "", "", "operator"},
	{"PUT", "/v1/plan", "attribute=jwt.org&value=a%0f", "", `{"plan": "pro", "reason": "r"}`, "operator"},
	{"GET", "/v1/plan", "attribute=jwt.org&value=a%0f", "", "", "operator"},
	{"GET", "/v1/plans", "attribute=jwt.org&n=1", "", "", "operator"},
	{"DELETE", "/v1/plan", "attribute=jwt.org&value=a%0f&reason=r", "", "", "operator"},
	{"GET", "/v1/nodes", "within=1h", "", "", "viewer"},
	{"GET", "/v1/audit", "n=3", "", "", "operator"},
	{"GET", "/v1/tokens", "", "", "", "admin"},
	{"POST", "/v1/tokens", "", "", `{"name": "x", "role": "viewer", "for": "1h"}`, "admin"},
	{"DELETE", "/v1/token", "name=x", "", "", "admin"},
}

// TestRoles tries every endpoint as everyone, and holds the answers, refused
// ones too, to the description that the server gives of itself.
func TestRoles(t *testing.T) {
	server, _, tokens := serve(t)
	_, described := ask(t, server, "", "GET", rulesapi.OpenAPI, "", "")
	text, _ := json.Marshal(described)
	api, err := openapi.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	roles := []string{"", "unknown", "viewer", "operator", "admin"}
	tokens["unknown"] = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	seen := make(map[string]bool)
	for _, q := range requests {
		seen[q.method+" "+q.path] = true
		if got := api.Operation(q.method, q.path)["x-role"]; got != q.least {
			t.Errorf("%s %s is described as for %v", q.method, q.path, got)
		}
		allowed := false
		for _, role := range roles {
			allowed = allowed || role == q.least
			body := q.body
			if strings.Contains(body, "%q") {
				body = fmt.Sprintf(body, document+"# "+role+"\n")
			}
			status, answer := ask(t, server, tokens[role], q.method, q.path+"?"+q.query, q.match, body)
			again := q.method == "DELETE" && status == http.StatusNotFound // another author was there before
			want := status/100 == 2 || again
			switch {
			case role == "" || role == "unknown":
				want = status == http.StatusUnauthorized
			case !allowed:
				want = status == http.StatusForbidden
			}
			if !want {
				t.Errorf("%s %s as %q: %d %v", q.method, q.path, role, status, answer)
			}
			kind := "application/json"
			switch {
			case status/100 != 2:
				kind = "application/problem+json"
			case strings.HasSuffix(q.path, ".csv"):
				kind = "text/csv"
			}
			if err := api.Answer(q.method, q.path, status, kind, answer); err != nil {
				t.Errorf("%s %s as %q: %d: %v", q.method, q.path, role, status, err)
			}
		}
	}
	for name, operation := range api.Operations {
		// Another package serves what has a part, and tries it.
		if operation["x-part"] == nil && !seen[name] {
			t.Errorf("%s is described and was not tried", name)
		}
	}
	if n := rulesapi.Endpoints(); n != len(requests) {
		t.Errorf("%d endpoints, %d tried", n, len(requests))
	}
}

// TestRefused has requests that are wrong, and what is said of them.
func TestRefused(t *testing.T) {
	server, _, tokens := serve(t)
	long := url.QueryEscape(strings.Repeat("k", 513))
	tests := []struct {
		method, path, match, body string
		status                    int
		says                      string
	}{
		{"POST", "/v1/rules", "", `{"document": "x"}`, 428, "If-Match"},
		{"POST", "/v1/rules", `"0"`, `{"document": "rules:\n  - {name: a, key: [ip], limits: [5/m]}\n"}`, 412, "revision 1 is in force, not 0"},
		{"POST", "/v1/rules", `one`, `{"document": "x"}`, 400, "If-Match"},
		{"POST", "/v1/rules", `"1"`, `{"document": "rules: 5"}`, 422, "rules"},
		{"POST", "/v1/rules/validate", "", "rules: []", 400, `the text of the rules goes into JSON, as {"document": "rules: …"}`},
		{"POST", "/v1/rules", `"1"`, `{"documents": "x"}`, 400, "documents"},
		{"POST", "/v1/rules", `"1"`, `{"document": "x"} {}`, 400, "follows"},
		{"PUT", "/v1/override?rule=api&key=k", "", `{"unlimited": true, "for": "1h", "for": ""}`, 400, "\"for\" twice"},
		{"PUT", "/v1/override?rule=api&key=k", "", `{"block": true, "Block": false, "unlimited": true}`, 400, "lower case"},
		{"POST", "/v1/rules", `"1"`, `{"document": "rules: []", "comment": "a\nb"}`, 422, ""},
		{"POST", "/v1/rules/rollback", `"1"`, `{"version": 9}`, 404, "revision 9"},
		{"GET", "/v1/rules?version=-1", "", "", 422, "whole number"},
		{"GET", "/v1/rules?version=%zz", "", "", 400, "query"},
		{"GET", "/v1/rules/history?n=1001", "", "", 422, "1000"},
		{"GET", "/v1/overrides?after=!", "", "", 422, "next"},
		{"PUT", "/v1/override?rule=nope&key=a", "", `{"limits": ["5/m"]}`, 422, "no rule"},
		{"PUT", "/v1/override?rule=api&kye=a", "", `{"limits": ["5/m"]}`, 422, "unknown: there is attribute, key, rule"},
		{"PUT", "/v1/override?rule=api&key=a&for=1h", "", `{"limits": ["5/m"]}`, 422, "unknown: there is"},
		{"GET", "/v1/overrides?n=2&n=3", "", "", 422, "it comes twice"},
		{"PUT", "/v1/override?rule=api", "", `{"limits": ["5/m"]}`, 422, "account"},
		{"PUT", "/v1/override?rule=api&key=a", "", `{"limits": ["five"]}`, 422, "whole number"},
		{"PUT", "/v1/override?rule=api&key=a", "", `{"limits": ["5/m", "9/h", "6 per minute"]}`, 422, "5/m and 6 per minute are of one kind and period (gcra:1m)"},
		{"POST", "/v1/overrides", "", "rule,key,limits\napi,a,5/m;6/m\n", 422, "of one kind and period"},
		{"PUT", "/v1/override?rule=api&key=a", "", `{"limits": ["5/m"], "block": true}`, 422, "one of these"},
		{"PUT", "/v1/override?rule=api&key=a", "", `{}`, 422, "one of these"},
		{"PUT", "/v1/override?rule=api&key=a", "", `{"block": true, "for": "-1s"}`, 422, "90s"},
		{"PUT", "/v1/override?rule=api&key=a", "", `{"block": true, "reason": "` + strings.Repeat("r", 1001) + `"}`, 422, "1000"},
		{"PUT", "/v1/override?rule=api&key=a", "", `{"block": true, "reason": "` + strings.Repeat("r", 70000) + `"}`, 413, "large"},
		{"GET", "/v1/override?rule=api&key=" + long, "", "", 404, "not found"},
		{"DELETE", "/v1/override?rule=api&key='%20OR%201=1%20--", "", "", 404, "not found"},
		{"DELETE", "/v1/token?name=nobody", "", "", 404, "nobody"},
		{"POST", "/v1/tokens", "", `{"name": "a", "role": "root"}`, 422, "viewer"},
		{"PUT", "/v1/block", "", `{"rule": "api", "key": "a", "for": "1h"}`, 400, "goes into the query, as in PUT /v1/block?rule=…&key=…"},
		{"PUT", "/v1/override?rule=api", "", `{"key": "a", "block": true}`, 400, "PUT /v1/override?rule=…&key=…"},
		{"PATCH", "/v1/rules", "", "", 405, "GET, POST"},
		{"GET", "/v1/rule", "", "", 404, "/v1/openapi.json"},
	}
	for _, test := range tests {
		status, answer := ask(t, server, tokens["admin"], test.method, test.path, test.match, test.body)
		detail, _ := answer.(map[string]any)["detail"].(string)
		if status != test.status || !strings.Contains(detail, test.says) {
			t.Errorf("%s %s %s: %d %v", test.method, test.path, test.body, status, answer)
		}
	}
}

// TestIdleOverrides refuses overrides where they would do nothing. What was set before the rule lost
// its limits stays, and is told as such; what is in shadow is told at once.
func TestIdleOverrides(t *testing.T) {
	server, db, tokens := serve(t)
	now, err := db.Revision(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(rules string) {
		t.Helper()
		if now, err = db.Publish(t.Context(), now.Number, rulesdb.Revision{Name: "a.yaml", Document: []byte("rules: [" + rules + "]\n")}); err != nil {
			t.Fatal(err)
		}
	}
	do := func(method, path, body string, want int, says string) {
		t.Helper()
		status, answer := ask(t, server, tokens["operator"], method, path, "", body)
		if text := fmt.Sprint(answer); status != want || !strings.Contains(text, says) || says == "" && strings.Contains(text, "note") {
			t.Errorf("%s %s %s: %d %v, want %q", method, path, body, status, answer, says)
		}
	}
	const tried = ", {name: tried, key: [ip], limits: 5/m, shadow: true}"
	publish("{name: a, key: [ip], limits: 5/m}, {name: b, key: [ip], limits: 5/m}" + tried)
	do("PUT", "/v1/block?rule=a&key=192.0.2.7", "{}", 200, "")
	do("PUT", "/v1/override?rule=b&key=192.0.2.7", `{"unlimited": true}`, 200, "")
	do("PUT", "/v1/block?rule=tried&key=192.0.2.7", "{}", 200, "note:It denies nobody: the rule is in shadow.")
	do("DELETE", "/v1/block?rule=tried&key=192.0.2.7", "", 200, "")
	do("GET", "/v1/overrides", "", 200, "")
	publish("{name: a, key: [ip], unlimited: true}" + tried)
	do("GET", "/v1/override?rule=a&key=192.0.2.7", "", 200, "note:does nothing: the rule has no limits")
	do("GET", "/v1/overrides?rule=b", "", 200, "note:does nothing: no rule has this name now")
	publish("{name: a, key: [ip], block: true}" + tried)
	do("PUT", "/v1/block?rule=a&key=192.0.2.8", "{}", 422, "detail:a has no limits, so a block under it would do nothing: name another rule")
	do("PUT", "/v1/override?rule=a&key=192.0.2.8", `{"limits": ["9/m"]}`, 422, "so an override under it")
	do("POST", "/v1/overrides", "rule,key,limits\na,192.0.2.8,unlimited\n", 422, "line 2, column 1: a has no limits")
	do("DELETE", "/v1/block?rule=a&key=192.0.2.7", "", 200, "")
}

// TestRevoked revokes a token in the database; the server then refuses it.
func TestRevoked(t *testing.T) {
	server, db, tokens := serve(t)
	if status, _ := ask(t, server, tokens["viewer"], "GET", "/v1/nodes", "", ""); status != http.StatusOK {
		t.Fatalf("before: %d", status)
	}
	if err := db.RevokeToken(t.Context(), "anna", "the viewer"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a token that was revoked is refused", func() bool {
		status, _ := ask(t, server, tokens["viewer"], "GET", "/v1/nodes", "", "")
		return status == http.StatusUnauthorized
	})
}

// TestClient does over HTTP what the commands do, with a key that is no UTF-8.
func TestClient(t *testing.T) {
	server, db, tokens := serve(t)
	exercise(t, remote(t, server, tokens["admin"]))
	acts, err := db.Audit(t.Context(), 0, 1)
	if err != nil || acts[0].Author != "the admin" {
		t.Errorf("the audit: %+v, %v", acts, err)
	}
	for _, bad := range []string{"http://192.0.2.1:80", "ftp://127.0.0.1", "127.0.0.1:80", "http://u:p@127.0.0.1"} {
		if _, err := rulesapi.Dial(bad, tokenFile(t, tokens["admin"])); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// TestOverridesAreLogged sets and removes an override: the log has a line on each,
// without the key.
func TestOverridesAreLogged(t *testing.T) {
	_, db, tokens := serve(t)
	var log bytes.Buffer
	server := httptest.NewServer(rulesapi.NewHandler(edit(db), rulesapi.HandlerOptions{
		Log: slog.New(slog.NewTextHandler(&log, nil)), KeyHash: func(string, string) string { return "hash" },
	}))
	for _, request := range [][3]string{
		{"PUT", "/v1/override?rule=api&key=customer-of-ours", `{"limits":["9/m"]}`},
		{"PUT", "/v1/block?rule=api&key=customer-of-ours", `{}`},
		{"DELETE", "/v1/override?rule=api&key=customer-of-ours", ""},
		{"DELETE", "/v1/override?rule=api&key=customer-of-ours", ""}, // there is none any more
	} {
		ask(t, server, tokens["operator"], request[0], request[1], "", request[2])
	}
	server.Close() // the log is not written any more
	for _, want := range []string{"act=\"override set\"", "act=block", "act=\"override remove\""} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("%s, want one line with %s", log.String(), want)
		}
	}
	if strings.Contains(log.String(), "customer-of-ours") {
		t.Errorf("the log has the key: %s", log.String())
	}
}

// A late backend has an override replaced between a look at it and a write.
type late struct{ rulesapi.Backend }

func (l late) Override(ctx context.Context, rule, key string) (rulesource.Override, error) {
	held, err := l.Backend.Override(ctx, rule, key)
	if err == nil {
		_, _, err = l.Backend.SetOverride(ctx, rulesource.Override{Rule: rule, Key: key, Limits: []string{"9/m"}}, 0)
	}
	return held, err
}

// TestUnblockReplaced ends a block in whose place another override may come meanwhile:
// what is removed is a block.
func TestUnblockReplaced(t *testing.T) {
	_, db, tokens := serve(t)
	server := httptest.NewServer(rulesapi.NewHandler(edit(late{db}), rulesapi.HandlerOptions{}))
	defer server.Close()
	ask(t, server, tokens["operator"], "PUT", "/v1/block?rule=api&key=a", "", `{}`)
	status, answer := ask(t, server, tokens["operator"], "DELETE", "/v1/block?rule=api&key=a", "", "")
	if text := fmt.Sprint(answer); status == http.StatusOK && !strings.Contains(text, "block:true") {
		t.Errorf("an override that is no block is removed: %s", text)
	}
}
