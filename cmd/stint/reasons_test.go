package main_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestReasons gives reasons that the audit does not take: nothing is done, and no act is
// marked as taken back.
func TestReasons(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir+"/stint.yaml", operateRules)
	database := "sqlite:" + dir + "/stint.db"
	session{args: []string{"rules", "push", file, "--rules", database}}.run()
	token := strings.TrimSpace(session{args: []string{"token", "make", "pager", "--role", "admin", "--rules", database}}.run())
	for name, args := range map[string][]string{"file": {"-c", file}, "database": {"--rules", database}} {
		t.Run(name, func(t *testing.T) {
			p := operated(t, args...)
			headers := map[string]string{}
			if name == "database" {
				headers["Authorization"] = "Bearer " + token
			}
			call := func(method, path, body string) (int, string) {
				return p.call(method, p.admin+path, body, headers)
			}
			if status, answer := call("PUT", "/v1/override?rule=orders&key=b", `{"limits":["100/h"]}`); status != http.StatusOK {
				t.Fatalf("%d %s", status, answer)
			}
			p.requests("a", 3)
			for _, reason := range []string{"undo of act 1", "undo of act 3", `two\nlines`, strings.Repeat("a", 1001)} {
				for _, act := range [][3]string{
					{"POST", "/v1/reset?rule=orders&key=a", `{"reason":"REASON"}`},
					{"POST", "/v1/refund?rule=orders&key=a", `{"cost":1,"reason":"REASON"}`},
					{"PUT", "/v1/override?rule=orders&key=a", `{"limits":["100/h"],"reason":"REASON"}`},
					{"PUT", "/v1/block?rule=orders&key=a", `{"reason":"REASON"}`},
				} {
					if status, answer := call(act[0], act[1], strings.Replace(act[2], "REASON", reason, 1)); status != http.StatusUnprocessableEntity {
						t.Errorf("%s with the reason %.20q: %d %s", act[1], reason, status, answer)
					}
				}
			}
			if passed := p.requests("a", 5); passed != 1 {
				t.Errorf("%d requests pass, want 1: nothing was done", passed)
			}
			if status, answer := call("POST", "/v1/undo", `{}`); status != http.StatusOK || !strings.Contains(answer, `"b`) {
				t.Errorf("undo of the last act: %d %s", status, answer)
			}
		})
	}
}
