package rules_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules"
)

// A node follows a database in a test.
type node struct {
	source *rules.Source
	stop   func()
}

func startNode(t *testing.T, from rulesource.Source, copy string) (*node, error) {
	t.Helper()
	follower, first, err := rules.Follow(t.Context(), rules.Following{Source: from, Name: "test", Copy: copy})
	if err != nil {
		return nil, err
	}
	return watch(t, follower, first, rules.Options{}), nil
}

// watch opens what a follower follows, until it is stopped.
func watch(t *testing.T, follower *rules.Follower, first *rules.File, o rules.Options) *node {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	source, err := follower.Open(ctx, memstore.New(memstore.Options{}), first, o)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = source.Watch(ctx) // it ends with ctx
	}()
	n := &node{source, func() { cancel(); <-done }}
	t.Cleanup(n.stop)
	return n
}

func mustStart(t *testing.T, from rulesource.Source, copy string) *node {
	t.Helper()
	n, err := startNode(t, from, copy)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// decided says what a request of an address is decided by: a text, "denied", or
// the error.
func (n *node) decided(t *testing.T, ip string) string {
	t.Helper()
	var r policy.Result
	switch err := n.source.Policy().Peek(t.Context(), policy.Map{"ip": ip}, 1, &r); {
	case err != nil:
		return err.Error()
	case len(r.Rules) == 0:
		return "free"
	default:
		return r.Rules[0].Text
	}
}

// problem is what the node says is the matter.
func (n *node) problem() string { _, problem := n.source.Held(); return problem }

func openDB(t *testing.T) *rulesdb.DB {
	t.Helper()
	return dbtest.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"), rulesdb.Options{})
}

func publish(t *testing.T, db *rulesdb.DB, limit string) {
	t.Helper()
	publishText(t, db, "rules: [{name: site, key: [ip], limits: ["+limit+"]}]\n")
}

func publishText(t *testing.T, db *rulesdb.DB, document string) {
	t.Helper()
	if _, err := db.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "stint.yaml", Document: []byte(document)}); err != nil {
		t.Fatal(err)
	}
}

// limits overrides the limits of a key.
func limits(t *testing.T, db *rulesdb.DB, key, limit string) {
	t.Helper()
	override(t, db, rulesource.Override{Rule: "site", Key: key, Limits: []string{limit}}, 0)
}

func override(t *testing.T, db *rulesdb.DB, o rulesource.Override, lasts time.Duration) {
	t.Helper()
	if _, _, err := db.SetOverride(t.Context(), o, lasts); err != nil {
		t.Fatal(err)
	}
}

// briefly sets an override that ends, and returns once that is seen. On a busy
// machine it may end before: then it lasts longer.
func briefly(t *testing.T, db *rulesdb.DB, o rulesource.Override, lasts time.Duration, seen func() bool) {
	t.Helper()
	for ; lasts <= time.Minute; lasts *= 3 {
		override(t, db, o, lasts)
		for begun := time.Now(); time.Since(begun) < lasts; time.Sleep(2 * time.Millisecond) {
			if seen() {
				return
			}
		}
	}
	t.Fatalf("never in force: %+v", o)
}

// TestFollow follows a database from empty through rules, overrides, an override
// that ends, a document that cannot be read, and a last copy.
func TestFollow(t *testing.T) {
	db, copy := openDB(t), filepath.Join(t.TempDir(), "below", "last.copy")
	n := mustStart(t, db, copy)
	if err := n.source.Ready(); err == nil || !strings.Contains(err.Error(), "stint rules push") {
		t.Errorf("ready without rules: %v", err)
	}
	var r policy.Result
	if err := n.source.Policy().Peek(t.Context(), policy.Map{}, 1, &r); !errors.Is(err, policy.ErrNotReady) {
		t.Errorf("decided without rules: %v", err)
	}
	publish(t, db, "5/m")
	await.Until(t, "the first rules", func() bool { return n.source.Ready() == nil && n.decided(t, "192.0.2.7") == "5/1m" })
	limits(t, db, "192.0.2.7", "9/m")
	await.Until(t, "an override", func() bool { return n.decided(t, "192.0.2.7") == "9/1m" })
	briefly(t, db, rulesource.Override{Rule: "site", Key: "192.0.2.8", Block: true}, 2*time.Second, func() bool { return n.decided(t, "192.0.2.8") == "block" })
	await.Until(t, "the override ends by itself", func() bool { return n.decided(t, "192.0.2.8") == "5/1m" })
	publish(t, db, "8/m")
	await.Until(t, "new rules, the override stays", func() bool { return n.decided(t, "192.0.2.1") == "8/1m" && n.decided(t, "192.0.2.7") == "9/1m" })

	publishText(t, db, "rules: 7")
	await.Until(t, "a document that cannot be read is refused", func() bool {
		v, problem := n.source.Held()
		return v.Revision == 2 && strings.Contains(problem, "revision 3")
	})
	if got := n.decided(t, "192.0.2.1"); got != "8/1m" {
		t.Errorf("after a bad document: %s", got)
	}
	publish(t, db, "7/m")
	await.Until(t, "a good one after it", func() bool { return n.problem() == "" && n.decided(t, "192.0.2.1") == "7/1m" })
	override(t, db, rulesource.Override{Rule: "site", Key: "192.0.2.9", Unlimited: true}, 0)
	await.Until(t, "a last change", func() bool { return n.decided(t, "192.0.2.9") == "unlimited" })
	n.stop()

	again := mustStart(t, gone{}, copy)
	for ip, want := range map[string]string{"192.0.2.1": "7/1m", "192.0.2.7": "9/1m", "192.0.2.8": "7/1m", "192.0.2.9": "unlimited"} {
		await.Until(t, "from the copy: "+ip+" is decided by "+want, func() bool { return again.decided(t, ip) == want })
	}
	if problem := again.problem(); !strings.Contains(problem, "last copy") && !strings.Contains(problem, "gone") {
		t.Errorf("from the copy: %q", problem)
	}
	if _, err := startNode(t, gone{}, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a node without source and copy starts")
	}
}

// gone is a source that cannot be reached.
type gone struct{}

var errGone = errors.New("gone")

func (gone) Load(context.Context, rulesource.Version, rulesource.Receiver) (*rulesource.Snapshot, error) {
	return nil, errGone
}
func (gone) Wait(context.Context, rulesource.Version) error { return errGone }
func (gone) Close() error                                   { return nil }

// TestCopyTorn cuts the copy at every length and starts from it: it is whole, or
// refused.
func TestCopyTorn(t *testing.T) {
	need.Time(t)
	db, copy := openDB(t), filepath.Join(t.TempDir(), "last.copy")
	publish(t, db, "5/m")
	n := mustStart(t, db, copy)
	limits(t, db, "192.0.2.7", "9/m")
	await.Until(t, "the override", func() bool { return n.decided(t, "192.0.2.7") == "9/1m" })
	n.stop()
	whole := disk.Read(t, copy)
	states := make(map[string]int)
	for cut := range len(whole) + 1 {
		data := whole[:cut]
		if cut%7 == 3 && cut < len(whole) { // a byte that the disk has changed
			data = append([]byte(nil), whole...)
			data[cut] ^= 0x10
		}
		torn := filepath.Join(t.TempDir(), "torn")
		disk.Write(t, torn, string(data))
		n, err := startNode(t, gone{}, torn)
		if err != nil {
			states["refused"]++
			continue
		}
		states[n.decided(t, "192.0.2.1")+" "+n.decided(t, "192.0.2.7")]++
		n.stop()
	}
	if len(states) != 2 || states["refused"] == 0 || states["5/1m 9/1m"] == 0 {
		t.Errorf("states %v", states)
	}
}
