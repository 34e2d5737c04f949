package rules_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
)

// A watched node is asked by several goroutines, each of which explains what it is
// answered.
type watched struct {
	*node
	asked atomic.Int64
}

// ask decides until ctx ends. Revision n has the limit of 1000 + n per minute:
// what decides is what the node reported before or after, or what it took in
// between, which it reports then.
func (w *watched) ask(ctx context.Context, t *testing.T, who string) {
	var r policy.Result
	last := int64(0)
	for ctx.Err() == nil {
		before, _ := w.source.Held()
		err := w.source.Policy().Decide(ctx, policy.Map{"ip": "192.0.2.1"}, 0, &r)
		after, _ := w.source.Held()
		if err != nil || len(r.Rules) != 1 {
			t.Errorf("%s: %v, %d rules", who, err, len(r.Rules))
			return
		}
		text, _, _ := strings.Cut(r.Rules[0].Text, "/")
		n, _ := strconv.ParseInt(text, 10, 64)
		n -= 1000
		for begun := time.Now(); n > after.Revision && time.Since(begun) < 2*time.Minute; time.Sleep(time.Millisecond) {
			after, _ = w.source.Held()
		}
		if n < before.Revision || n > after.Revision || n < last {
			t.Errorf("%s: decided by revision %d after %d, while the node reported %d and then %d", who, n, last, before.Revision, after.Revision)
			return
		}
		last = n
		w.asked.Add(1)
		time.Sleep(100 * time.Microsecond)
	}
}

// TestNodesOutlive publishes in a row while a node decides, which takes the versions in order
// and decides by what it reports; then it takes the database away in each way that there is:
// the node decides on, says what is the matter, and holds what is published afterwards.
func TestNodesOutlive(t *testing.T) {
	need.Time(t)
	for name, start := range map[string]func(testing.TB) *dbtest.Server{
		"postgres": func(t testing.TB) *dbtest.Server { return dbtest.Postgres(t) },
		"mariadb":  func(t testing.TB) *dbtest.Server { return dbtest.MariaDB(t, "--innodb-flush-log-at-trx-commit=1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			wire := dbtest.NewWire(t, server.URL)
			db := dbtest.OpenMigrated(t, server.URL, rulesdb.Options{})
			publish(t, db, "1001/m")
			n := &watched{node: mustStart(t, dbtest.OpenMigrated(t, wire.URL, rulesdb.Options{}), filepath.Join(t.TempDir(), "copy"))}
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer stop()
			for g := range 2 {
				all.Go(func() { n.ask(ctx, t, fmt.Sprint(name, " ", g)) })
			}
			revision := int64(1)
			for ; revision < 20; time.Sleep(50 * time.Millisecond) {
				revision++
				publish(t, db, fmt.Sprintf("%d/m", 1000+revision))
				override(t, db, rulesource.Override{Rule: "site", Key: fmt.Sprint(revision), Block: true}, 0)
			}
			await.Until(t, "it holds the last", func() bool { v, problem := n.source.Held(); return v.Revision == revision && problem == "" })
			for _, fault := range []struct {
				what        string
				break_, end func()
			}{
				{"killed", server.Kill, func() { server.Start(t) }},
				{"stopped", server.Stop, server.Continue},
				{"silent", wire.Silence, wire.Restore},
			} {
				fault.break_()
				await.Until(t, fault.what+": the alarm", func() bool { return n.problem() != "" })
				problem := n.problem()
				if strings.Count(problem, "://") > 1 {
					t.Errorf("%s: the place is named twice: %s", fault.what, problem)
				}
				fault.end()
				revision++
				await.Until(t, "it is published", func() bool {
					_, err := db.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "stint.yaml", Document: fmt.Appendf(nil, "rules: [{name: site, key: [ip], limits: [%d/m]}]\n", 1000+revision)})
					return err == nil
				})
				await.Until(t, fault.what+": the next revision", func() bool {
					v, problem := n.source.Held()
					return v.Revision == revision && problem == ""
				})
			}
			if n.asked.Load() == 0 {
				t.Error("nothing was decided")
			}
		})
	}
}

// A skewed source belongs to a node whose clock is wrong.
type skewed struct {
	*rulesdb.DB
	by time.Duration // that the node's clock is ahead
}

func (s skewed) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	return s.DB.Load(ctx, held, skewedReceiver{to, s.by})
}

func (s skewed) Clock(ctx context.Context) (ahead, doubt time.Duration, err error) {
	ahead, doubt, err = s.DB.Clock(ctx)
	return ahead - s.by, doubt, err
}

type skewedReceiver struct {
	rulesource.Receiver
	by time.Duration
}

func (r skewedReceiver) Begin(s *rulesource.Snapshot, whole bool) error {
	s.Ahead -= r.by
	return r.Receiver.Begin(s, whole)
}

// TestExpiryOnThreeNodes ends an override on three nodes, of which one's clock is
// an hour ahead and one's an hour behind.
func TestExpiryOnThreeNodes(t *testing.T) {
	need.Time(t)
	url := dbtest.PostgresURL(t)
	db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	publish(t, db, "5/m")
	var nodes []*node
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
		follower, first, err := rules.Follow(t.Context(), rules.Following{Source: skewed{dbtest.OpenMigrated(t, url, rulesdb.Options{}), by}, Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		rules.SetClock(follower, func() time.Time { return time.Now().Add(by) })
		nodes = append(nodes, watch(t, follower, first, rules.Options{}))
	}
	briefly(t, db, rulesource.Override{Rule: "site", Key: "192.0.2.7", Limits: []string{"9/m"}}, 15*time.Second, func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool { return n.decided(t, "192.0.2.7") != "9/1m" })
	})
	await.Until(t, "all end it", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool { return n.decided(t, "192.0.2.7") == "9/1m" })
	})
}

// TestCopyDiskFull fills the disk of the last copy: the node goes on and says so,
// does not read everything anew at each change, and keeps a copy again once there
// is room.
func TestCopyDiskFull(t *testing.T) {
	need.Time(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("a small disk cannot be made: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	db, copy := openDB(t), filepath.Join(dir, "last.copy")
	publish(t, db, "5/m")
	counted := &counted{DB: db}
	n := mustStart(t, counted, copy)
	filler := filepath.Join(dir, "filler")
	_ = os.WriteFile(filler, bytes.Repeat([]byte("x"), 1<<20), 0o600) // as much as there is room for
	for i := range 30 {
		override(t, db, rulesource.Override{Rule: "site", Key: fmt.Sprint(i, strings.Repeat("k", 400)), Block: true}, 0)
	}
	override(t, db, rulesource.Override{Rule: "site", Key: "192.0.2.7", Block: true}, 0)
	await.Until(t, "the last change", func() bool { return n.decided(t, "192.0.2.7") == "block" })
	await.Until(t, "the alarm", func() bool { return strings.Contains(n.problem(), "no space left") })
	if whole := counted.wholes.Load(); whole > 5 {
		t.Errorf("everything was read %d times", whole)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a copy again, without a change", func() bool { return n.problem() == "" })
	n.stop()
	if got := mustStart(t, gone{}, copy).decided(t, "192.0.2.7"); got != "block" {
		t.Errorf("from the copy: %s, want block", got)
	}
}

// TestStrangeValues has another program write what is no number, or no time that JSON
// can have, into a file of SQLite, which takes anything: such rows are left out with an
// alarm, or end late; all others hold, and the list can be shown.
func TestStrangeValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.db")
	db := dbtest.Open(t, "sqlite:"+file, rulesdb.Options{})
	publish(t, db, "5/m")
	strange := map[string]string{
		"expires = 'NaN'": "5/1m", "expires = 1e300": "5/1m", "action = 'block'": "5/1m", "action = 1.5": "5/1m",
		"action = 9": "5/1m", "limits = CAST(x'01' AS TEXT)": "5/1m", // as a later version may write, and broken text
		"expires = 9223372036854775807": "9/1m", "created = 'never'": "9/1m", "created = -9223372036854775808": "9/1m", "change_number = change_number + 0.5": "9/1m",
	}
	n := mustStart(t, db, "")
	for i, set := range slices.Sorted(maps.Keys(strange)) {
		key := fmt.Sprintf("192.0.2.%d", i)
		limits(t, db, key, "9/m")
		dbtest.Exec(t, "sqlite:"+file, "UPDATE stint_overrides SET "+set+" WHERE change_number = (SELECT change_number FROM stint_state)")
		limits(t, db, "198.51.100.1", "8/m")
		await.Until(t, "a change after "+set, func() bool { return n.decided(t, "198.51.100.1") == "8/1m" })
		all, err := db.Overrides(t.Context(), rulesdb.Page{})
		if err != nil || len(all) != 2 {
			t.Errorf("%s: %d overrides: %v", set, len(all), err)
		}
		if _, err := json.Marshal(all); err != nil {
			t.Errorf("%s: %v", set, err)
		}
		anew := mustStart(t, db, "")
		if got := anew.decided(t, key); got != strange[set] {
			t.Errorf("%s: decided by %s, want %s", set, got, strange[set])
		}
		if problem := anew.problem(); (problem != "") != (strange[set] == "5/1m") {
			t.Errorf("%s: the alarm: %q", set, problem)
		}
		anew.stop()
		override(t, db, rulesource.Override{Rule: "site", Key: key, Removed: true}, 0)
		override(t, db, rulesource.Override{Rule: "site", Key: "198.51.100.1", Removed: true}, 0)
		await.Until(t, "it is removed", func() bool { return n.decided(t, "198.51.100.1") == "5/1m" })
	}
}

// TestLargeRules follows a document of 30 MB.
func TestLargeRules(t *testing.T) {
	need.Time(t)
	db, copy := openDB(t), filepath.Join(t.TempDir(), "last.copy")
	publish(t, db, "5/m")
	n := mustStart(t, db, copy)
	document := append(bytes.Repeat([]byte("# 30 MB of a comment, which is rules as well\n"), 30<<20/45), "rules: [{name: site, key: [ip], limits: [6/m]}]\n"...)
	publishText(t, db, string(document))
	await.Until(t, "the large document", func() bool { return n.decided(t, "192.0.2.1") == "6/1m" })
	await.Until(t, "it is held", func() bool { v, _ := n.source.Held(); return v.Revision == 2 })
	n.stop()
	if got := mustStart(t, gone{}, copy).decided(t, "192.0.2.1"); got != "6/1m" {
		t.Errorf("from the copy: %s", got)
	}
}
