package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
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
	operators := disk.Write(t, dir+"/operators", operator+"\n")
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
	text := disk.Read(t, operators)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "name=yves") {
			before, _, _ := strings.Cut(line, "until=")
			line = before + "until=" + time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) + "\n"
		}
		lines = append(lines, line)
	}
	disk.Write(t, operators, strings.Join(lines, ""))
	return all, []string{"--token-file", disk.Write(t, dir+"/askers", asker+"\n"), "--operator-token-file", operators}
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
	rules := disk.Write(t, dir+"/stint.yaml", operateRules)
	database := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "push", rules, "--rules", database)
	for where, source := range map[string][]string{"file": {"-c", rules}, "database": {"--rules", database}} {
		t.Run(where, func(t *testing.T) {
			all, flags := visitors(t)
			p := operated(t, append(source, flags...)...)
			p.call(http.MethodPost, p.front+"/v1/check", `{"attributes":{"header.x-api-key":"a"}}`, bearer(all[3].token)) // something is recorded
			for _, e := range endpoints {
				for _, v := range all {
					role, good := v.file, e.file
					if where == "database" {
						role, good = v.database, e.database
					}
					want := wantedOf(role, &e, good)
					headers := map[string]string{"If-Match": "*"}
					maps.Copy(headers, bearer(v.token))
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

// TestTokenFile makes tokens in a file, which both programs follow: each role may
// do its part, the audit has the name, and a token that is revoked is refused
// within a moment while it is in use. Rules are in a file, and in a database.
func TestTokenFile(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		file := dir + "/tokens"
		shown := map[string]string{"": ""} // the file of each one's token
		for name, role := range map[string]string{"vera": "viewer", "otto": "operator", "ada": "admin"} {
			text := must(t, "token", "make", name, "--role", role, "--for", "1d", "--file", file)
			shown[name] = disk.Write(t, dir+"/"+name, text)
			if stored, err := os.ReadFile(file); err != nil || strings.Contains(string(stored), text) {
				t.Fatalf("the file has the token itself, or none: %v", err)
			}
		}
		shown["hashes"], shown["nobody"] = file, disk.Write(t, dir+"/nobody", "no token")
		rules := disk.Write(t, dir+"/stint.yaml", operateRules)
		database := "sqlite:" + dir + "/stint.db"
		must(t, "rules", "push", rules, "--rules", database)
		for _, source := range [][]string{{"-c", rules}, {"--rules", database}} {
			p := start(append(source, "--operator-token-file", file)...)
			do := func(who string, args ...string) (status int, errs string) {
				if shown[who] != "" {
					args = append(args, "--token-file", shown[who])
				}
				status, _, errs = p.stint(args...)
				return status, errs
			}
			set := []string{"override", "set", "orders", "partner-1", "100/h", "--for", "1h"}
			for _, one := range []struct {
				who, want string
				args      []string
			}{
				{"vera", "this is for the role operator, and yours is viewer; --token-file FILE has your token", set},
				{"hashes", "has hashes of tokens, for a server", set},
				{"nobody", "want a token that is known here, as Authorization: Bearer TOKEN; --token-file FILE has your token", set},
				{"vera", "", []string{"inspect", "--header", "x-api-key=partner-1"}},
				{"otto", "", set},
				{"ada", "", []string{"override", "remove", "orders", "partner-1"}},
			} {
				if status, errs := do(one.who, one.args...); (status == 0) != (one.want == "") || !strings.Contains(errs, one.want) {
					t.Errorf("%v: %s, %v: exit %d %s", source, one.who, one.args, status, errs)
				}
			}
			publish := func(who string) (status int) {
				token, _ := os.ReadFile(shown[who])
				status, _ = p.call(http.MethodPost, p.admin+"/v1/rules", `{"name":"stint.yaml","document":"rules: [{name: orders, key: [header.x-api-key], limits: [6/h]}]"}`,
					map[string]string{"If-Match": "*", "Authorization": "Bearer " + string(token)})
				return status
			}
			if status := publish("otto"); status != http.StatusForbidden {
				t.Errorf("%v: an operator publishes: %d", source, status)
			}
			if status := publish("ada"); source[0] == "--rules" && status != http.StatusCreated {
				t.Errorf("an admin publishes: %d", status)
			}
			if _, out, errs := p.stint("audit", "--token-file", shown["otto"]); !strings.Contains(out, "otto") || !strings.Contains(out, "ada") {
				t.Errorf("%v: the audit:\n%s%s", source, out, errs)
			}
			must(t, "token", "revoke", "otto", "--file", file)
			await.Until(t, fmt.Sprintf("%v: a revoked token is refused", source), func() bool {
				status, _ := do("otto", set...)
				return status == 1
			})
			if status, errs := do("vera", "inspect", "--header", "x-api-key=partner-1"); status != 0 {
				t.Errorf("%v: the others are refused, too: %s", source, errs)
			}
			if err := p.end(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			disk.Write(t, shown["otto"], must(t, "token", "make", "otto", "--role", "operator", "--file", file))
		}
		if list := must(t, "token", "list", "--file", file); strings.Count(list, "revoked") != 2 || !strings.Contains(list, "vera: viewer, made ") {
			t.Errorf("the list:\n%s", list)
		}
		if status, _, errs := runStint(t, "token", "revoke", "nobody", "--file", file); status != 1 || !strings.Contains(errs, "not found") {
			t.Errorf("revoking what is not there: exit %d %s", status, errs)
		}
		text := disk.Read(t, file)
		disk.Write(t, file, "short\n"+string(text)) // a line that servers do not take: they keep the tokens they had
		if status, _, errs := runStint(t, "token", "revoke", "vera", "--file", file); status != 1 || !strings.Contains(errs, "servers refuse the file") {
			t.Errorf("revoking in a file that servers refuse: exit %d %s", status, errs)
		}
	})
}

// TestWrongTokens shows good, missing and wrong tokens at each interface: the metric
// has the wrong ones, the log who showed them, a line or two for however many.
func TestWrongTokens(t *testing.T) {
	dir := t.TempDir()
	secret := disk.Write(t, dir+"/secret", strings.Repeat("s", 32))
	s := startServe(t, "-c", disk.Write(t, dir+"/stint.yaml", interfaceRules), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--secret-file", secret, "--token-file", disk.Write(t, dir+"/tokens", serveToken), "--operator-token-file", disk.Write(t, dir+"/operators", operatorToken))
	envoy := grpcClient(t, s.at("interface=grpc"), insecure.NewCredentials())
	redisAt := s.at("interface=resp")
	web := func(method, url string) func(token string) {
		return func(token string) {
			if status, answer := s.call(method, url, "{}", bearer(token)); token == wrongToken && status != http.StatusUnauthorized {
				t.Errorf("%s: %d %s", url, status, answer)
			}
		}
	}
	page := func(token string) {
		if status, answer := s.call("POST", s.admin+"/ui/session", `{"token":"`+token+`"}`, nil); token == wrongToken && status != http.StatusUnauthorized {
			t.Errorf("the page: %d %s", status, answer)
		}
	}
	const many = 200
	want := map[string]int{}
	for _, c := range []struct {
		at    string
		times int
		good  string // "" for none of the files: it wants one that the secret has signed
		show  func(token string)
	}{
		{"http", 1, operatorToken, web("POST", s.front+"/v1/check")},
		{"http", 1, operatorToken, web("POST", s.front+"/v1/reset")},
		{"http", 1, operatorToken, web("POST", s.front+"/json")},
		{"http", 1, operatorToken, web("GET", s.front+"/metrics")},
		{"http", 1, "", web("GET", s.front+"/v1/usage")},
		{"admin", 1, operatorToken, web("GET", s.admin+"/v1/rules")},
		{"admin", 1, "", web("GET", s.admin+"/v1/usage")},
		{"admin", 1, operatorToken, web("POST", s.admin+"/v1/rehearse")},
		{"admin", 1, operatorToken, page},
		{"grpc", many, operatorToken, func(token string) {
			ctx := t.Context()
			if token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
			}
			_, _ = envoy.ShouldRateLimit(ctx, envoyRequest("rls", question{map[string]string{"user": "ann"}, 1})) // the metric says what came of it
		}},
		{"resp", many, operatorToken, func(token string) {
			client := redis.NewClient(&redis.Options{Addr: redisAt, Protocol: 2, MaxRetries: -1, PoolSize: 1})
			defer client.Close()
			if token == "" {
				_ = client.Ping(t.Context()).Err()
				return
			}
			err := client.Do(t.Context(), "AUTH", token).Err()
			if token == wrongToken && fmt.Sprint(err) != "WRONGPASS invalid token" {
				t.Error(err)
			}
		}},
	} {
		c.show("")
		if c.good != "" {
			c.show(c.good)
		}
		for range c.times {
			c.show(wrongToken)
		}
		want[c.at] += c.times
	}
	_, metrics := s.call("GET", s.front+"/metrics", "", bearer(serveToken))
	for name, n := range want {
		if line := fmt.Sprintf("stint_wrong_tokens_total{interface=%q} %d\n", name, n); !strings.Contains(metrics, line) {
			t.Errorf("no %s in\n%s", line, regexp.MustCompile(`(?m)^stint_wrong.*$`).FindAllString(metrics, -1))
		}
	}
	s.stop("")
	for name, n := range want {
		lines := regexp.MustCompile(`(?m)^.*msg="wrong token.*interface=`+name+` address=127\.0\.0\.1\b.*$`).FindAllString(s.log(), -1)
		if len(lines) < 2 || len(lines) > 4 || !strings.Contains(lines[0], "level=WARN") { // two, or four across the end of a minute
			t.Errorf("%s: %d wrong tokens, and the log says %q", name, n, lines)
		}
	}
	if strings.Contains(s.log(), wrongToken) {
		t.Error("the log has a token")
	}
}

const wrongToken = "wrong-0123456789abcdef"
