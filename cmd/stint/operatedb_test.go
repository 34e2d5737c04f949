package main_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
)

// TestOperateDatabase looks and acts where rules are in a database: its tokens say
// who acts, acts go there and are undone, and a guest sees and changes nothing.
func TestOperateDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		database := "sqlite:" + dir + "/stint.db"
		must(t, "rules", "push", writeFile(t, dir+"/stint.yaml", operateRules), "--rules", database)
		token := writeFile(t, dir+"/token", must(t, "token", "make", "pager", "--role", "operator", "--rules", database))
		p := start("--rules", database)
		p.requests("partner-1", 6)
		if s := p.inspect("--header", "x-api-key=partner-1"); !s.Rules[0].Denied {
			t.Errorf("%+v", s)
		}
		if status, _, errs := p.stint("override", "set", "orders", "partner-1", "100/h"); status != 1 || !strings.Contains(errs, "want a token") {
			t.Errorf("a guest: exit %d %s", status, errs)
		}
		do := func(want string, args ...string) {
			t.Helper()
			status, out, errs := p.stint(append(args, "--token-file", token)...)
			if status != 0 || !strings.Contains(out, want) {
				t.Fatalf("stint %s: exit %d %s%s", strings.Join(args, " "), status, out, errs)
			}
		}
		passes := func(want int) {
			t.Helper()
			await.Until(t, "a request passes, or not", func() bool { return p.requests("partner-1", 1) == want }) // nodes learn of it from the database
		}
		do("orders partner-1: 100/h until ", "override", "set", "orders", "partner-1", "100/h", "--for", "1h", "--reason", "a launch")
		passes(1)
		if s := p.inspect("--header", "x-api-key=partner-1"); s.Rules[0].Override == nil || s.Rules[0].Override.Author != "pager" || s.Rules[0].Override.Reason != "a launch" {
			t.Errorf("%+v", s.Rules[0])
		}
		do("is taken back: orders partner-1: the rule's own limits hold again", "audit", "undo")
		passes(0)
		do("as if never used", "reset", "orders", "partner-1", "--reason", "our fault")
		passes(1)
		do("is taken back", "audit", "undo")
		passes(0)
		if _, out, _ := p.stint("audit", "--token-file", token); !strings.Contains(out, "pager  reset orders") || !strings.Contains(out, "our fault") {
			t.Errorf("the audit:\n%s", out)
		}
		if b := p.top(); len(b.Denied) == 0 || b.Denied[0].Key == "partner-1" {
			t.Errorf("a guest sees keys: %+v", b.Denied)
		}
	})
}
