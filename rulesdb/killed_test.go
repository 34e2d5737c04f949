package rulesdb_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
)

// writeOn publishes and sets overrides until it is killed, and prints after each
// how many of both there are by its own count.
func writeOn(url string) {
	ctx := context.Background()
	db, err := rulesdb.Open(url, rulesdb.Options{})
	for err == nil {
		var r rulesdb.Revision
		if r, err = db.Publish(ctx, rulesdb.AnyVersion, rulesdb.Revision{Name: "a.yaml", Document: []byte("rules: []")}); err != nil {
			break
		}
		fmt.Println("revision", r.Number)
		_, now, setErr := db.SetOverride(ctx, rulesource.Override{Rule: "a", Key: fmt.Sprint(r.Number), Block: true}, 0)
		if err = setErr; err == nil {
			fmt.Println("change", now.Change)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestWriterKilled kills a process that writes, again and again: all that it was
// reported is there, of what it was doing all or nothing, numbers have no gaps, and the
// next writer need not wait for it.
func TestWriterKilled(t *testing.T) {
	need.Time(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, url string) {
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		for round := range 8 {
			writer := exec.Command(self)
			writer.Env = append(os.Environ(), "STINT_TEST_WRITER="+url)
			writer.Stderr = os.Stderr
			out, err := writer.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := writer.Start(); err != nil {
				t.Fatal(err)
			}
			reported := map[string]int64{}
			lines := bufio.NewScanner(out)
			for n := 0; lines.Scan(); n++ {
				var what string
				var number int64
				if _, err := fmt.Sscan(lines.Text(), &what, &number); err != nil {
					t.Fatal(err)
				}
				reported[what] = number
				if n == 5+round { // what it does just now is another thing each time
					_ = writer.Process.Kill()
				}
			}
			_ = writer.Wait() // it was killed
			held(t, db, reported)
		}
	})
}

// held holds a database to what its writer was told before it was killed.
func held(t *testing.T, db *rulesdb.DB, reported map[string]int64) {
	t.Helper()
	// The next writer waits until the database has done with the one that was killed.
	next := must(db.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "a.yaml", Document: []byte("rules: []")}))(t)
	s := must(load(t.Context(), db, rulesource.Version{}))(t)
	for what, now := range map[string]int64{"revision": next.Parent, "change": s.Version.Change} {
		if reported[what] == 0 || now < reported[what] || now > reported[what]+1 {
			t.Errorf("%s %d, and the writer was told %d", what, now, reported[what])
		}
	}
	if int64(len(s.Overrides)) != s.Version.Change {
		t.Errorf("%d overrides after %d changes", len(s.Overrides), s.Version.Change)
	}
	log := must(db.Revisions(t.Context(), 0, 100_000))(t)
	for i, r := range log {
		if want := int64(len(log) - i); r.Number != want || r.Parent != want-1 {
			t.Fatalf("revision %d of %d: %+v", i, len(log), r)
		}
	}
	acts := must(db.Audit(t.Context(), 0, 100_000))(t)
	if n := int64(len(acts)); n != s.Version.Revision+s.Version.Change || acts[0].Number != n {
		t.Errorf("%d acts for %d revisions and %d changes", n, s.Version.Revision, s.Version.Change)
	}
}
