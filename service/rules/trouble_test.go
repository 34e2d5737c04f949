package rules_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
)

// TestEndingBesideChange prolongs an override while it ends.
func TestEndingBesideChange(t *testing.T) {
	t.Parallel() // it waits
	var prolonged, other atomic.Bool
	e := rules.NewExpiries(func(_, key string) error {
		if key == "192.0.2.7" {
			prolonged.Store(true)
		} else {
			other.Store(true)
		}
		return nil
	})
	soon := time.Now().Add(3 * time.Second) // and no sooner than it is prolonged
	e.Change("site", "192.0.2.7", soon, func() {})
	e.Change("site", "192.0.2.7", time.Time{}, func() { time.Sleep(time.Until(soon) + 30*time.Millisecond) })
	e.Change("site", "192.0.2.8", time.Now(), func() {})
	await.Until(t, "the other ends", other.Load)
	if prolonged.Load() {
		t.Error("the override that was prolonged has ended")
	}
}

// TestCopyRecovers takes the copy away, or spoils its end: the next change makes
// it good again.
func TestCopyRecovers(t *testing.T) {
	for name, spoil := range map[string]func(copy string) error{
		"gone": os.Remove,
		"torn": func(copy string) error {
			f, err := os.OpenFile(copy, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("\x00\x00\x01\x00torn")
			return errors.Join(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, copy := openDB(t), filepath.Join(t.TempDir(), "last.copy")
			publish(t, db, "5/m")
			n := mustStart(t, db, copy)
			if name == "torn" {
				n.stop()
			}
			if err := spoil(copy); err != nil {
				t.Fatal(err)
			}
			if name == "torn" {
				s := &switched{DB: db}
				s.off.Store(true)
				n = mustStart(t, s, copy)
				s.off.Store(false)
				await.Until(t, "the source is back", func() bool { return n.problem() == "" })
			} else {
				override(t, db, rulesource.Override{Rule: "site", Key: "192.0.2.1", Block: true}, 0)
				await.Until(t, "a change", func() bool { v, _ := n.source.Held(); return v.Change == 1 })
			}
			limits(t, db, "192.0.2.7", "9/m")
			await.Until(t, "the override", func() bool { return n.decided(t, "192.0.2.7") == "9/1m" })
			n.stop()
			if got := mustStart(t, gone{}, copy).decided(t, "192.0.2.7"); got != "9/1m" {
				t.Errorf("from the copy: %s, want 9/1m", got)
			}
		})
	}
}

// TestUndeclared publishes rules that a proxy may not use.
func TestUndeclared(t *testing.T) {
	db := openDB(t)
	publish(t, db, "5/m")
	follower, first, err := rules.Follow(t.Context(), rules.Following{Source: db, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	n := watch(t, follower, first, rules.Options{By: request.Proxy})
	publishText(t, db, "rules: [{name: site, key: [ip], limits: [5/m]}, {name: more, key: [tenant], limits: [6/m]}]\n")
	await.Until(t, "revision 2 is looked at", func() bool { v, problem := n.source.Held(); return v.Revision == 2 || problem != "" })
	if v, problem := n.source.Held(); v.Revision != 1 || !strings.Contains(problem, "tenant") {
		t.Errorf("revision %d, %q", v.Revision, problem)
	}
}

// TestBadDocumentAtStart starts a node while the source holds a document that
// cannot be read: what was in force before is in the copy.
func TestBadDocumentAtStart(t *testing.T) {
	db, copy := openDB(t), filepath.Join(t.TempDir(), "last.copy")
	publish(t, db, "5/m")
	mustStart(t, db, copy).stop()
	publishText(t, db, "rules: 7")
	n := mustStart(t, db, copy)
	if got := n.decided(t, "192.0.2.1"); got != "5/1m" {
		t.Errorf("decided by %s, want 5/1m", got)
	}
	await.Until(t, "the alarm", func() bool { return strings.Contains(n.problem(), "revision 2") })
}

// A flaky source fails its Wait for a while.
type flaky struct {
	rulesource.Source
	bad, hurried atomic.Bool
}

func (f *flaky) Wait(ctx context.Context, held rulesource.Version) error {
	if _, set := ctx.Deadline(); set {
		f.hurried.Store(true)
	}
	for !f.bad.Load() && ctx.Err() == nil {
		look, stop := context.WithTimeout(ctx, 10*time.Millisecond)
		err := f.Source.Wait(look, held)
		stop()
		if err == nil {
			return nil
		}
	}
	return cmp.Or(ctx.Err(), errGone)
}

// TestAnswersAgain lets a source fail and answer again without a change: the
// trouble ends. A source is left to find out by itself that nothing answers.
func TestAnswersAgain(t *testing.T) {
	db := openDB(t)
	publish(t, db, "5/m")
	f := &flaky{Source: db}
	n := mustStart(t, f, "")
	f.bad.Store(true)
	await.Until(t, "the trouble", func() bool { return strings.Contains(n.problem(), "gone") })
	f.bad.Store(false)
	await.Until(t, "its end", func() bool { return n.problem() == "" })
	if f.hurried.Load() {
		t.Error("Wait has a deadline: a source that hangs is never found out")
	}
}

// TestCopyIncomplete lets a whole copy fail, as on a full disk: later changes are
// not added to the copy before, which lacks what came between.
func TestCopyIncomplete(t *testing.T) {
	db, dir := openDB(t), t.TempDir()
	publish(t, db, "5/m")
	mustStart(t, db, filepath.Join(dir, "short")).stop()
	long := filepath.Join(dir, strings.Repeat("n", 250)) // a new file beside it would have too long a name
	if err := os.Rename(filepath.Join(dir, "short"), long); err != nil {
		t.Fatal(err)
	}
	limits(t, db, "192.0.2.7", "9/m")
	n := mustStart(t, db, long)
	limits(t, db, "192.0.2.8", "9/m")
	await.Until(t, "the override", func() bool { return n.decided(t, "192.0.2.8") == "9/1m" })
	n.stop()
	n = mustStart(t, gone{}, long)
	if first, second := n.decided(t, "192.0.2.7"), n.decided(t, "192.0.2.8"); first != "9/1m" && second == "9/1m" {
		t.Errorf("a state that never was: %s and %s", first, second)
	}
}

// TestLeftOut has an override that cannot be read: all others are in force, and
// the alarm stays until it is mended.
func TestLeftOut(t *testing.T) {
	db := openDB(t)
	publish(t, db, "5/m")
	n := mustStart(t, db, "")
	limits(t, db, "192.0.2.7", "nine per minute")
	await.Until(t, "the alarm", func() bool { return strings.Contains(n.problem(), "1 overrides cannot be in force") })
	limits(t, db, "192.0.2.8", "8/m")
	await.Until(t, "another override", func() bool { return n.decided(t, "192.0.2.8") == "8/1m" })
	if !strings.Contains(n.problem(), "rule site") || n.decided(t, "192.0.2.7") != "5/1m" {
		t.Errorf("after a good one: %q, %s", n.problem(), n.decided(t, "192.0.2.7"))
	}
	limits(t, db, "192.0.2.7", "9/m")
	await.Until(t, "the mended one", func() bool { return n.problem() == "" && n.decided(t, "192.0.2.7") == "9/1m" })
}

// TestRestoredAndChanged restores a database to an older state and changes it until
// its numbers are those of before, and higher: nodes keep what they hold until that
// is accepted, and then hold nothing of what was lost.
func TestRestoredAndChanged(t *testing.T) { onEach(t, restoredAndChanged) }

// onEach runs a test on an empty database of each kind, of one where time is short.
func onEach(t *testing.T, test func(t *testing.T, db *rulesdb.DB, url string)) {
	for name, url := range map[string]func(testing.TB) string{"postgres": dbtest.PostgresURL, "mariadb": dbtest.MariaDBURL,
		"sqlite": func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "rules.db") }} {
		t.Run(name, func(t *testing.T) {
			if name != "sqlite" {
				need.Time(t)
			}
			url := url(t)
			db := dbtest.OpenMigrated(t, url, rulesdb.Options{Poll: 50 * time.Millisecond})
			test(t, db, url)
		})
	}
}

func restoredAndChanged(t *testing.T, db *rulesdb.DB, url string) {
	run := func(statement string) { dbtest.Exec(t, url, statement) }
	publish(t, db, "5/m")
	limits(t, db, "192.0.2.1", "6/m")
	limits(t, db, "192.0.2.2", "7/m")
	n := mustStart(t, db, "")
	holds := func(one, two, three string) bool {
		return n.decided(t, "192.0.2.1") == one && n.decided(t, "192.0.2.2") == two && n.decided(t, "192.0.2.3") == three
	}
	await.Until(t, "all", func() bool { return holds("6/1m", "7/1m", "5/1m") })
	run("UPDATE stint_state SET change_number = 1")
	run("DELETE FROM stint_overrides WHERE change_number > 1")
	await.Until(t, "the alarm", func() bool { return strings.Contains(n.problem(), "stint rules accept") })
	if !holds("6/1m", "7/1m", "5/1m") {
		t.Error("the older state is in force")
	}
	limits(t, db, "192.0.2.3", "8/m") // its numbers are those that the node holds
	limits(t, db, "192.0.2.4", "8/m")
	await.Until(t, "the newest is seen", func() bool { return strings.Contains(n.problem(), "change 3") })
	if !holds("6/1m", "7/1m", "5/1m") {
		t.Errorf("another history is in force: %s", n.problem())
	}
	if err := db.Accept(t.Context(), "anna", "restored on purpose"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "what is accepted", func() bool { return n.problem() == "" && holds("6/1m", "5/1m", "8/1m") })

	publish(t, db, "9/m")
	await.Until(t, "revision 2", func() bool { return holds("6/1m", "9/1m", "8/1m") })
	run("UPDATE stint_state SET revision = 1, change_number = change_number + 1")
	await.Until(t, "the alarm", func() bool { return strings.Contains(n.problem(), "stint rules accept") })
	run("DELETE FROM stint_revisions WHERE number = 2")
	publish(t, db, "10/m")
	limits(t, db, "192.0.2.4", "8/m") // it is looked at, and is not the revision 2 that is held
	await.Until(t, "the newest is seen", func() bool { return strings.Contains(n.problem(), "revision 2") })
	if !holds("6/1m", "9/1m", "8/1m") {
		t.Error("other rules of the same number are in force")
	}
	if err := db.Accept(t.Context(), "anna", "restored on purpose"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "what is accepted", func() bool { return holds("6/1m", "10/1m", "8/1m") })
}

// TestRestoredUnseen restores a database and changes it while a node is stopped, or does
// not look: to less than the numbers that the node holds, to those, or beyond. It says so
// and keeps what it has until that is accepted, or the history is brought back.
func TestRestoredUnseen(t *testing.T) {
	onEach(t, func(t *testing.T, db *rulesdb.DB, url string) {
		for name, looks := range map[string]bool{"stopped": false, "running": true} {
			for _, beyond := range []int{-1, 0, 3} {
				t.Run(fmt.Sprintf("%s, %d beyond", name, beyond), func(t *testing.T) { restoredUnseen(t, db, url, looks, beyond) })
			}
		}
	})
}

func restoredUnseen(t *testing.T, db *rulesdb.DB, url string, running bool, beyond int) {
	if err := db.Accept(t.Context(), "anna", "the next test"); err != nil {
		t.Fatal(err)
	}
	publish(t, db, "5/m")
	limits(t, db, "192.0.2.1", "6/m")
	limits(t, db, "192.0.2.2", "5/m")
	limits(t, db, "192.0.2.3", "5/m")
	older := dbtest.Backup(t, url)
	publish(t, db, "7/m")
	limits(t, db, "192.0.2.2", "8/m")
	both := &switched{DB: db}
	copy := filepath.Join(t.TempDir(), "last.copy")
	n := mustStart(t, both, copy)
	await.Until(t, "all", func() bool { return n.decided(t, "192.0.2.2") == "8/1m" })
	if running {
		both.off.Store(true)
	} else {
		n.stop()
	}
	newer := dbtest.Backup(t, url)
	older()
	publish(t, db, "9/m")
	for i := range 1 + beyond {
		limits(t, db, "192.0.2.3", fmt.Sprintf("%d/m", 10+i))
	}
	if running {
		both.off.Store(false)
	} else {
		n = mustStart(t, both, copy)
	}
	await.Until(t, "the alarm", func() bool { return strings.Contains(n.problem(), "stint rules accept") })
	if got := n.decided(t, "192.0.2.9") + n.decided(t, "192.0.2.2") + n.decided(t, "192.0.2.3"); got != "7/1m8/1m5/1m" {
		t.Errorf("before it is accepted: %s", got)
	}
	if beyond > 0 {
		newer()
		await.Until(t, "what was before", func() bool { return n.problem() == "" })
		limits(t, db, "192.0.2.4", "4/m")
		await.Until(t, "a change behind it", func() bool { return n.decided(t, "192.0.2.4") == "4/1m" && n.decided(t, "192.0.2.2") == "8/1m" })
		return
	}
	if err := db.Accept(t.Context(), "anna", "restored on purpose"); err != nil {
		t.Fatal(err)
	}
	third := map[int]string{-1: "5/1m", 0: "10/1m"}[beyond]
	await.Until(t, "what is accepted", func() bool {
		return n.problem() == "" && n.decided(t, "192.0.2.9") == "9/1m" && n.decided(t, "192.0.2.2") == "5/1m" && n.decided(t, "192.0.2.3") == third
	})
}

// A switched source is not looked at while it is off, and cannot be loaded.
type switched struct {
	*rulesdb.DB
	off atomic.Bool
}

func (s *switched) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	if s.off.Load() {
		return nil, errGone
	}
	return s.DB.Load(ctx, held, to)
}

func (s *switched) Wait(ctx context.Context, held rulesource.Version) error {
	for ctx.Err() == nil {
		if s.off.Load() {
			time.Sleep(time.Millisecond)
		} else if err := s.DB.Wait(ctx, held); !s.off.Load() {
			return err
		}
	}
	return ctx.Err()
}

// TestStandby: a node that reads a hot standby of a database, where it cannot write
// its row, says once that it is missing among the nodes, and follows the rules.
func TestStandby(t *testing.T) {
	primary := dbtest.Postgres(t)
	db := dbtest.OpenMigrated(t, primary.URL, rulesdb.Options{})
	publish(t, db, "5/m")
	standby := dbtest.Open(t, primary.Standby(t).URL, rulesdb.Options{})
	var lines bytes.Buffer // written by the one who reports
	log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var tries atomic.Int64
	follower, first, err := rules.Follow(t.Context(), rules.Following{Source: standby, Name: "standby", Log: log, Report: func(ctx context.Context, n rules.Node) error {
		tries.Add(1)
		return standby.Report(ctx, rulesdb.Node{Name: "n", Version: n.Version})
	}})
	if err != nil {
		t.Fatal(err)
	}
	n := watch(t, follower, first, rules.Options{})
	await.Until(t, "the rules are in force", func() bool { return n.decided(t, "192.0.2.7") == "5/1m" })
	publish(t, db, "6/m")
	await.Until(t, "new rules are in force", func() bool { return n.decided(t, "192.0.2.7") == "6/1m" })
	await.Until(t, "the node has tried to write its row", func() bool { return tries.Load() >= 3 })
	n.stop()
	if said := strings.Count(lines.String(), "stint rules nodes does not list this node"); said != 1 || !strings.Contains(lines.String(), "read-only") {
		t.Errorf("%d lines say that the node is not listed, want one with the reason:\n%s", said, lines.String())
	}
}
