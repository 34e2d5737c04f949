package main_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

// TestUndo takes back a reset, a refund, and an override that took the place of
// another; what is not in force any more stays.
func TestUndo(t *testing.T) {
	onStores(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		p := start("-c", disk.Write(t, dir+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["4 per day fixed_window"]}]`))
		do := func(status int, want string, args ...string) {
			t.Helper()
			got, out, errs := p.stint(args...)
			if got != status || !strings.Contains(out+errs, want) {
				t.Fatalf("stint %s: exit %d\n%s%s\nwant %d %s", strings.Join(args, " "), got, out, errs, status, want)
			}
		}
		left := func(want int64) {
			t.Helper()
			if s := p.inspect("--header", "x-api-key=a"); s.Rules[0].Limits[0].Remaining != want {
				t.Errorf("%d are left, want %d", s.Rules[0].Limits[0].Remaining, want)
			}
		}
		do(1, "there is no act of yours to take back", "audit", "undo")
		p.requests("a", 3)
		left(1)
		do(0, "as if never used", "reset", "orders", "a")
		left(4)
		do(0, "act 1 is taken back: orders a: charged again: 3 of orders", "audit", "undo")
		left(1)
		do(0, "up to 2 units given back", "reset", "orders", "a", "--cost", "2")
		left(3)
		do(0, "charged again: 2 of orders", "audit", "undo")
		left(1)
		do(0, "orders a: 8", "override", "set", "orders", "a", "8 per day fixed_window")
		do(0, "as if never used", "reset", "orders", "a")
		do(0, "charged again: 3 of orders\n", "audit", "undo")
		left(5)
		do(0, "the rule's own", "override", "remove", "orders", "a")
		left(1)
		do(0, "9/h", "override", "set", "orders", "a", "9/h")
		do(0, "blocked, before 9/h", "block", "a", "--rule", "orders")
		do(1, "act 9 is not what holds any more", "audit", "undo", "9")
		do(0, "act 10 is taken back: orders a: as before: 9/h", "audit", "undo")
		do(1, "Your last act, 11, is an undo of act 10: name the act by its number", "audit", "undo")
		do(0, "act 9 is taken back: orders a: the rule's own limits hold again", "audit", "undo", "9")
		do(1, "has been taken back already", "audit", "undo", "10")
		do(1, "there is no act 99: the last is ", "audit", "undo", "99")
	})
}

// TestOverrideFile raises a limit for a while, blocks and undoes, with a plain
// file: the client feels it at once, the acts survive a kill, and the audit says
// what was done.
func TestOverrideFile(t *testing.T) {
	onStores(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		args := []string{"-c", disk.Write(t, dir+"/stint.yaml", operateRules)}
		p := start(args...)
		do := func(want string, args ...string) {
			t.Helper()
			status, out, errs := p.stint(args...)
			if status != 0 || !strings.Contains(out, want) {
				t.Fatalf("stint %s: exit %d\n%s%s\nwant %s", strings.Join(args, " "), status, out, errs, want)
			}
		}
		if n := p.requests("partner-1", 6); n != 4 {
			t.Fatalf("%d passed, want 4", n)
		}
		do("orders partner-1: 100/h until ", "override", "set", "orders", "partner-1", "100/h", "--for", "1h", "--reason", "a launch")
		if n := p.requests("partner-1", 10); n != 10 {
			t.Errorf("with an override %d of 10 passed", n)
		}
		if s := p.inspect("--header", "x-api-key=partner-1"); s.Rules[0].Override == nil || s.Rules[0].Override.Author != "this machine" || s.Rules[0].Override.Reason != "a launch" || s.Rules[0].Limits[0].Limit != "100/1h" {
			t.Errorf("%+v", s.Rules[0])
		}
		_ = p.end(syscall.SIGKILL)
		p = start(args...)
		if n := p.requests("partner-1", 10); n != 10 {
			t.Errorf("after a kill %d of 10 passed", n)
		}
		do("blocked", "block", "partner-2", "--rule", "orders", "--for", "24h")
		if n := p.requests("partner-2", 3); n != 0 {
			t.Errorf("blocked, and %d passed", n)
		}
		do(`act 2 is taken back: orders partner-2: the rule's own limits hold again`, "audit", "undo")
		if n := p.requests("partner-2", 3); n != 3 {
			t.Errorf("not blocked any more, and %d of 3 passed", n)
		}
		do(`act 1 is taken back`, "audit", "undo", "1")
		do("orders partner-1: as if never used", "reset", "orders", "partner-1")
		if n := p.requests("partner-1", 5); n != 4 {
			t.Errorf("after a reset %d passed, want 4", n)
		}
		do("orders partner-1: up to 1 units given back", "reset", "orders", "partner-1", "--cost", "1")
		if n := p.requests("partner-1", 3); n != 1 {
			t.Errorf("after a refund %d passed, want 1", n)
		}
		status, out, errs := p.stint("audit", "--json")
		if status != 0 {
			t.Fatal(errs)
		}
		var acts []string
		for _, a := range decode[[]struct{ Act, Subject, Author string }](t, out) {
			acts = append(acts, a.Act+" "+a.Subject)
			if a.Author != "this machine" {
				t.Errorf("%+v", a)
			}
		}
		slices.Reverse(acts)
		want := []string{`override set orders "partner-1"`, `override set orders "partner-2"`, `override remove orders "partner-2"`,
			`override remove orders "partner-1"`, `reset orders "partner-1"`, `refund orders "partner-1"`}
		if !slices.Equal(acts, want) {
			t.Errorf("the audit has %q, want %q", acts, want)
		}
		for customer, want := range map[string]string{
			"partner-1": `refund orders "partner-1": up to 1 units given back, gave back 1 of orders/`,
			"nobody":    `refund orders "nobody": up to 1 units given back, nothing was in use, as far as is known`,
		} {
			do("up to 1 units given back", "reset", "orders", customer, "--cost", "1")
			if _, out, _ := p.stint("audit", "-n", "1"); !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("%s; want %s", out, want)
			}
		}
	})
}

// unkept is what an operator is told whose act cannot be kept.
const unkept = "nothing has changed: the server's state file cannot be written"

// TestOverrideUnkept has a state file and a snapshot that cannot be written: the log says so
// at the start, and whoever acts is told what was done and what to change.
func TestOverrideUnkept(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("there is no directory here in which root cannot write either")
	}
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", disk.Write(t, t.TempDir()+"/stint.yaml", operateRules), "--state", "/proc/acts", "--snapshot", "/proc/self/stint.snapshot", "--snapshot-every", "1h")
		p.waitFor("snapshot: it cannot be saved")
		p.waitFor("operators can change nothing: the state file cannot be written")
		p.requests("partner-1", 6)
		for _, act := range []string{"override set orders partner-1 100/h --for 1h", "reset orders partner-1"} {
			if status, _, errs := p.stint(strings.Fields(act)...); status != 1 || !strings.Contains(errs, unkept) {
				t.Errorf("stint %s: exit %d %s", act, status, errs)
			}
		}
		if n := p.requests("partner-1", 6); n != 0 {
			t.Errorf("after a reset that was refused %d passed", n)
		}
		if p.end(syscall.SIGTERM) == nil || strings.Contains(p.log(), "snapshot: not saved") {
			t.Error("a snapshot that is not saved is no success, or is said more than once")
		}
	})
}

// TestOwnWrite sets, blocks, removes, resets and undoes at a server whose rules are in a
// database: its tokens say who acts, a guest changes nothing and sees no key, and the next
// request there is decided by the act, whatever the database is and however nodes learn of
// changes.
func TestOwnWrite(t *testing.T) {
	for name, url := range map[string]func() string{
		"sqlite":    func() string { return "sqlite:" + t.TempDir() + "/stint.db" },
		"postgres":  func() string { return dbtest.Postgres(t).URL },
		"pgbouncer": func() string { return dbtest.PgBouncer(t, dbtest.Postgres(t).URL) },
		"mariadb":   func() string { return dbtest.MariaDB(t).URL },
	} {
		t.Run(name, func(t *testing.T) {
			if name != "sqlite" {
				need.Time(t)
			}
			ownWrite(t, url())
		})
	}
}

func ownWrite(t *testing.T, url string) {
	dir := t.TempDir()
	token := disk.Write(t, dir+"/token", published(t, url, operateRules, "admin"))
	p := operated(t, "--rules", url, "--rules-copy", "none")
	do := func(args ...string) string {
		t.Helper()
		status, out, errs := p.stint(append(args, "--token-file", token)...)
		if status != 0 {
			t.Fatalf("%v: exit %d %s", args, status, errs)
		}
		return out
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
		if status, _, errs := p.stint("override", "set", "orders", client, "100/h"); status != 1 || !strings.Contains(errs, "want a token") {
			t.Errorf("a guest: exit %d %s", status, errs)
		}
		passes(client, 0)
		do("override", "set", "orders", client, "100/h", "--for", "1h", "--reason", "a launch")
		passes(client, 1)
		if o := p.inspect("--header", "x-api-key="+client).Rules[0].Override; o == nil || o.Author != "pager" || o.Reason != "a launch" {
			t.Errorf("the override: %+v", o)
		}
		do("audit", "undo")
		passes(client, 0)
		do("override", "set", "orders", client, "unlimited")
		passes(client, 1)
		do("override", "remove", "orders", client)
		passes(client, 0)
		do("reset", "orders", client, "--reason", "our fault")
		passes(client, 1)
		do("audit", "undo")
		passes(client, 0)
	}
	if audit := do("audit"); !strings.Contains(audit, "pager  reset orders") || !strings.Contains(audit, "our fault") {
		t.Errorf("the audit:\n%s", audit)
	}
	if b := p.top(); len(b.Denied) == 0 || b.Denied[0].Key != b.Denied[0].KeyHash {
		t.Errorf("a guest sees keys: %+v", b.Denied)
	}
	do("block", "partner-9", "--rule", "orders")
	passes("partner-9", 0)
	do("block", "end", "partner-9", "--rule", "orders")
	passes("partner-9", 1)
	do("rules", "push", disk.Write(t, dir+"/more.yaml", "rules: []\n"))
	passes("partner-0", 1)
}

// TestReasons gives reasons that the audit does not take: nothing is done, and no act is
// marked as taken back.
func TestReasons(t *testing.T) {
	dir := t.TempDir()
	file := disk.Write(t, dir+"/stint.yaml", operateRules)
	database := "sqlite:" + dir + "/stint.db"
	token := published(t, database, operateRules, "admin")
	for name, args := range map[string][]string{"file": {"-c", file}, "database": {"--rules", database}} {
		t.Run(name, func(t *testing.T) {
			p := operated(t, args...)
			if _, _, errs := p.stint("rules", "rollback", "1"); name == "file" && !strings.Contains(errs, "the rules are in a file: change that") {
				t.Errorf("a rollback of a file: %s", errs)
			}
			call := func(method, path, body string) (int, string) {
				return p.call(method, p.admin+path, body, map[string]map[string]string{"database": bearer(token)}[name])
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

// TestResetUnanswered resets a customer while the database is lost: before the audit is
// begun, so that nothing is done, and who asked is told so; and when the audit
// has that it was begun, so that it is done, and who asked is told to look there.
func TestResetUnanswered(t *testing.T) {
	url, dir := dbtest.Postgres(t).URL, t.TempDir()
	token := disk.Write(t, dir+"/token", published(t, url, operateRules, "admin"))
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

// TestUnblockLate ends a block in whose place another operator sets limits just before
// the server is asked to end it: these stay, and who asked is told.
func TestUnblockLate(t *testing.T) {
	db := dbtest.Open(t, "sqlite:"+t.TempDir()+"/stint.db", rulesdb.Options{})
	if _, err := db.Publish(t.Context(), 0, rulesdb.Revision{Name: "a.yaml", Document: []byte("rules: [{name: api, key: [ip], limits: 5/m}]")}); err != nil {
		t.Fatal(err)
	}
	set := func(o rulesource.Override) {
		o.Rule, o.Key = "api", "192.0.2.7"
		if _, _, err := db.SetOverride(t.Context(), o, 0); err != nil {
			t.Error(err)
		}
	}
	set(rulesource.Override{Block: true})
	operator := func(*http.Request) (string, rulesdb.Role) { return "anna", rulesdb.Operator }
	h := rulesapi.NewHandler(rulesapi.New(db, rules.Decode, nil), rulesapi.HandlerOptions{Guest: operator})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			set(rulesource.Override{Limits: []string{"9/m"}})
		}
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	if status, out, errs := runStint(t, "block", "end", "192.0.2.7", "--rule", "api", "--server", server.URL); status == 0 || !strings.Contains(errs, "it is not blocked: it has 9/m") {
		t.Errorf("exit %d %s%s", status, out, errs)
	}
	if o, err := db.Override(t.Context(), "api", "192.0.2.7"); err != nil || len(o.Limits) != 1 {
		t.Errorf("afterwards: %+v %v", o, err)
	}
}

// TestUndoGiftInDatabase: what a reset gave is in a server's store: without a server it
// is not taken back, and stays as it is.
func TestUndoGiftInDatabase(t *testing.T) {
	url := "sqlite:" + t.TempDir() + "/stint.db"
	must(t, "rules", "push", disk.Write(t, t.TempDir()+"/stint.yaml", operateRules), "--rules", url)
	db := dbtest.Open(t, url, rulesdb.Options{})
	if err := db.Note(t.Context(), rulesdb.Act{Author: "anna", Act: "reset", Subject: `orders "k"`, Was: "[]"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := (session{args: []string{"audit", "undo", "2", "--rules", url}}).run(); !strings.Contains(got, "act 2, reset: ") || !strings.Contains(got, "--server") || !strings.Contains(got, "exit 2") {
			t.Error(got)
		}
	}
}

// TestUndoTwice takes one act back several times at once, at one server and at two
// that share a database: one undo is done, the others are told so, and what a reset
// gave is charged once.
func TestUndoTwice(t *testing.T) {
	dir := t.TempDir()
	file := disk.Write(t, dir+"/stint.yaml", operateRules)
	database := "sqlite:" + dir + "/stint.db"
	token := published(t, database, operateRules, "operator")
	t.Run("file", func(t *testing.T) { undoTwice(t, "", operated(t, "-c", file)) })
	t.Run("database", func(t *testing.T) {
		undoTwice(t, token, operated(t, "--rules", database, "--node", "n1"), operated(t, "--rules", database, "--node", "n2"))
	})
}

// undoTwice acts at the first of several servers, and takes that back at all.
func undoTwice(t *testing.T, token string, servers ...*running) {
	p := servers[0]
	headers := bearer(token)
	act := func(method, path, body string) {
		t.Helper()
		if status, answer := p.call(method, p.admin+path, body, headers); status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
	}
	acts := 0
	undo := func(t *testing.T) {
		t.Helper()
		acts++
		var all sync.WaitGroup
		var done, refused atomic.Int64
		for i := range 8 {
			s := servers[i%len(servers)]
			all.Go(func() {
				switch status, answer := s.call(http.MethodPost, s.admin+"/v1/undo", fmt.Sprintf(`{"act":%d}`, acts), headers); status {
				case http.StatusOK:
					done.Add(1)
				case http.StatusUnprocessableEntity:
					refused.Add(1)
				default:
					t.Errorf("status %d: %s", status, answer)
				}
			})
		}
		all.Wait()
		if done.Load() != 1 || refused.Load() != 7 {
			t.Errorf("act %d: %d undos are done, %d refused, want 1 and 7", acts, done.Load(), refused.Load())
		}
		acts++ // the undo
	}
	if token != "" {
		acts = 2 // the push and the token
	}
	for i := range 5 {
		client := fmt.Sprintf("partner-%d", i)
		p.requests(client, 1)
		act("POST", "/v1/reset?rule=orders&key="+client, `{}`)
		undo(t)
		passed := 0
		for _, s := range servers { // each has a memory of its own
			passed += s.requests(client, 5)
		}
		if want := 4*len(servers) - 1; passed != want {
			t.Errorf("%s: %d requests pass after the undos of a reset, want %d", client, passed, want)
		}
		act("PUT", "/v1/override?rule=orders&key="+client, `{"limits":["100/h"]}`)
		undo(t)
		act("PUT", "/v1/block?rule=orders&key="+client, `{}`)
		undo(t)
	}
}

// TestSlowPublish publishes while another writer holds the database for longer than
// other answers of the admin address may take: the author is told that it is done. A
// client that does not send its body is not waited for that long.
func TestSlowPublish(t *testing.T) {
	url, dir := dbtest.Postgres(t).URL, t.TempDir()
	token := published(t, url, operateRules, "admin")
	must(t, "rules", "push", disk.Write(t, dir+"/other.yaml", "rules: []\n"), "--rules", url)
	p := operated(t, "--rules", url, "--rules-copy", "none")

	slow, err := net.Dial("tcp", host(p.admin))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "POST /v1/rules HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nIf-Match: *\r\nContent-Length: 100\r\n\r\n{", token)

	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec("UPDATE stint_state SET epoch = epoch"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(12*time.Second, func() { _ = other.Rollback() }) // the publication waits for it
	// One that brings no document: who brings one has more time, to send it.
	status, out, errs := p.stint("rules", "rollback", "1", "--token-file", disk.Write(t, dir+"/token", token))
	if status != 0 || !strings.Contains(out, "revision 3 is in force") {
		t.Errorf("exit %d %s%s", status, out, errs)
	}

	_ = slow.SetReadDeadline(time.Now().Add(40 * time.Second))
	if resp, err := http.ReadResponse(bufio.NewReader(slow), nil); err != nil || resp.StatusCode/100 != 4 {
		t.Errorf("a client that does not send its body: %v, %v", resp, err)
	}
}
