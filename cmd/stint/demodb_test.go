package main_test

import (
	"strings"
	"syscall"
	"testing"
)

// TestDemoDatabase starts on a SQLite file that is not there: it has the rules of
// the demo and a customer's own limits then, and decides by both. A second start
// leaves what it finds.
func TestDemoDatabase(t *testing.T) {
	database := "sqlite:" + t.TempDir() + "/stint.db"
	command := func(args ...string) string {
		t.Helper()
		return session{args: append(args, "--rules", database)}.run()
	}
	begin := func(says string) *running {
		t.Helper()
		p := operated(t, "--rules", database, "--demo")
		p.waitFor(says)
		return p
	}
	p := begin("the database has rules now")
	if said := command("override", "list"); !strings.Contains(said, "api") || !strings.Contains(said, "friend") || !strings.Contains(said, "50/m") {
		t.Errorf("overrides:\n%s", said)
	}
	for key, want := range map[string]string{"friend": `"limit":50,`, "another": `"limit":5,`} {
		status, answer := p.call("POST", p.front+"/v1/check", `{"attributes":{"method":"GET","path":"/api/items","header.x-api-key":"`+key+`","ip":"192.0.2.7"}}`, nil)
		if status != 200 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %s", key, status, answer, want)
		}
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	command("override", "remove", "api", "friend")
	p = begin("the database holds rules already")
	if said := command("rules", "log", "--json"); strings.Count(said, `"version"`) != 1 {
		t.Errorf("a second start publishes:\n%s", said)
	}
	if said := command("override", "list"); strings.Contains(said, "friend") {
		t.Errorf("a second start writes:\n%s", said)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
