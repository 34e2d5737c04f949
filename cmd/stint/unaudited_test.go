package main_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// TestResetUnanswered resets a customer while the database is lost: before the audit is
// begun, so that nothing is done, and who asked is told so; and when the audit
// has that it was begun, so that it is done, and who asked is told to look there.
func TestResetUnanswered(t *testing.T) {
	url, dir := dbtest.Postgres(t).URL, t.TempDir()
	session{args: []string{"rules", "migrate", "--rules", url}}.run()
	session{args: []string{"rules", "push", writeFile(t, dir+"/stint.yaml", operateRules), "--rules", url}}.run()
	token := writeFile(t, dir+"/token", strings.TrimSpace(session{args: []string{"token", "make", "anna", "--role", "admin", "--rules", url}}.run()))
	wire := dbtest.NewWire(t, url)
	p := operated(t, "--rules", wire.URL, "--rules-copy", "none")
	for _, one := range []struct {
		after, want string
		passes      int
	}{
		{"update stint_state", "this cannot be done now", 0},
		{"delete from stint_audit", "it is done, and the audit may have only that it was begun", 4},
	} {
		p.requests("partner-1", 6)
		wire.CutAfter(one.after)
		if status, _, errs := p.stint("reset", "orders", "partner-1", "--token-file", token, "--reason", "ours"); status != 1 || !strings.Contains(errs, one.want) {
			t.Errorf("lost after %q: exit %d %s", one.after, status, errs)
		}
		wire.CutAfter("")
		if n := p.requests("partner-1", 6); n != one.passes {
			t.Errorf("lost after %q: then %d pass, want %d", one.after, n, one.passes)
		}
		session{args: []string{"override", "set", "orders", "partner-2", "9/h", "--rules", url}}.run() // it waits until the other has ended
		audit := session{args: []string{"audit", "--rules", url}}.run()
		if noted := strings.Contains(audit, "reset orders"); noted != (one.passes > 0) {
			t.Errorf("lost after %q: the audit\n%s", one.after, audit)
		}
	}
	// So it is with what takes a reset back.
	if status, _, errs := p.stint("reset", "orders", "partner-1", "--token-file", token); status != 0 {
		t.Fatal(errs)
	}
	wire.CutAfter("delete from stint_audit")
	if status, _, errs := p.stint("audit", "undo", "--token-file", token); status != 1 || !strings.Contains(errs, "it is done, and the audit may have only that it was begun") {
		t.Errorf("an undo: exit %d %s", status, errs)
	}
	wire.CutAfter("")
	if n := p.requests("partner-1", 6); n != 0 {
		t.Errorf("after the undo %d pass", n)
	}
}
