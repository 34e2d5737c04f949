package main_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/await"
)

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
			shown[name] = writeFile(t, dir+"/"+name, text)
			if stored, err := os.ReadFile(file); err != nil || bytes.Contains(stored, []byte(strings.TrimSpace(text))) {
				t.Fatalf("the file has the token itself, or none: %v", err)
			}
		}
		rules := writeFile(t, dir+"/stint.yaml", operateRules)
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
				{"vera", "this is for the role operator, and yours is viewer", set},
				{"vera", "", []string{"inspect", "--header", "x-api-key=partner-1"}},
				{"otto", "", set},
				{"ada", "", []string{"override", "remove", "orders", "partner-1"}},
			} {
				if status, errs := do(one.who, one.args...); (status == 0) != (one.want == "") || !strings.Contains(errs, one.want) {
					t.Errorf("%v: %s, %v: exit %d %s", source, one.who, one.args, status, errs)
				}
			}
			publish := func(who string) (status int) {
				r, err := http.NewRequest(http.MethodPost, p.admin+"/v1/rules", strings.NewReader(`{"name":"stint.yaml","document":"rules: [{name: orders, key: [header.x-api-key], limits: [6/h]}]"}`))
				if err != nil {
					t.Fatal(err)
				}
				token, _ := os.ReadFile(shown[who]) // "" has none
				r.Header = http.Header{"If-Match": {"*"}, "Authorization": {"Bearer " + strings.TrimSpace(string(token))}}
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Close()
				return answer.StatusCode
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
			writeFile(t, shown["otto"], must(t, "token", "make", "otto", "--role", "operator", "--file", file))
		}
		if list := must(t, "token", "list", "--file", file); strings.Count(list, "revoked") != 2 || !strings.Contains(list, "vera: viewer, made ") {
			t.Errorf("the list:\n%s", list)
		}
		var errs bytes.Buffer
		if status := main.Run(t.Context(), []string{"token", "revoke", "nobody", "--file", file}, strings.NewReader(""), &errs, &errs); status != 1 || !strings.Contains(errs.String(), "not found") {
			t.Errorf("revoking what is not there: exit %d %s", status, errs.String())
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, "short\n"+string(text)) // a line that servers do not take: they keep the tokens they had
		errs.Reset()
		if status := main.Run(t.Context(), []string{"token", "revoke", "vera", "--file", file}, strings.NewReader(""), &errs, &errs); status != 1 || !strings.Contains(errs.String(), "servers refuse the file") {
			t.Errorf("revoking in a file that servers refuse: exit %d %s", status, errs.String())
		}
	})
}
