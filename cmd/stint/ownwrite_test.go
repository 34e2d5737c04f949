package main_test

import (
	"fmt"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// TestOwnWrite sets, blocks, removes and undoes at a server: the next request there
// is decided by it, whatever the database is and however nodes learn of changes.
func TestOwnWrite(t *testing.T) {
	need.Time(t)
	for name, url := range map[string]func() string{
		"sqlite":    func() string { return "sqlite:" + t.TempDir() + "/stint.db" },
		"postgres":  func() string { return dbtest.Postgres(t).URL },
		"pgbouncer": func() string { return dbtest.PgBouncer(t, dbtest.Postgres(t).URL) },
		"mariadb":   func() string { return dbtest.MariaDB(t).URL },
	} {
		t.Run(name, func(t *testing.T) { ownWrite(t, url()) })
	}
}

func ownWrite(t *testing.T, url string) {
	dir := t.TempDir()
	session{args: []string{"rules", "migrate", "--rules", url}}.run()
	session{args: []string{"rules", "push", writeFile(t, dir+"/stint.yaml", operateRules), "--rules", url}}.run()
	token := writeFile(t, dir+"/token", session{args: []string{"token", "make", "pager", "--role", "admin", "--rules", url}}.run())
	p := operated(t, "--rules", url, "--rules-copy", "none")
	do := func(args ...string) {
		t.Helper()
		if status, _, errs := p.stint(append(args, "--token-file", token)...); status != 0 {
			t.Fatalf("%v: exit %d %s", args, status, errs)
		}
	}
	passes := func(client string, want int) {
		t.Helper()
		if got := p.requests(client, 1); got != want {
			t.Errorf("%s: %d requests pass after the act, want %d", client, got, want)
		}
	}
	for i := range 3 {
		client := fmt.Sprintf("partner-%d", i)
		p.requests(client, 6) // all that its rule admits
		do("override", "set", "orders", client, "100/h", "--for", "1h")
		passes(client, 1)
		do("audit", "undo")
		passes(client, 0)
		do("override", "set", "orders", client, "unlimited")
		passes(client, 1)
		do("override", "remove", "orders", client)
		passes(client, 0)
	}
	do("block", "partner-9", "--rule", "orders")
	passes("partner-9", 0)
	do("block", "end", "partner-9", "--rule", "orders")
	passes("partner-9", 1)
	do("rules", "push", writeFile(t, dir+"/more.yaml", "rules: []\n"))
	passes("partner-0", 1)
}
