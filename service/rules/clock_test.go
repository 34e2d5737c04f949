package rules_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
)

// TestClockSet sets the source's clock an hour forth: an override that is to end
// within that hour has ended, at once.
func TestClockSet(t *testing.T) {
	var ended atomic.Bool
	e := rules.NewExpiries(func(_, _ string) error { ended.Store(true); return nil })
	e.Measured(0, time.Millisecond)
	e.Change("site", "192.0.2.7", time.Now().Add(30*time.Minute), func() {})
	e.Measured(20*time.Millisecond, 100*time.Millisecond) // less certain, and no contradiction
	if ended.Load() {
		t.Fatal("ended before its time")
	}
	e.Measured(time.Hour, 5*time.Millisecond)
	await.Until(t, "the override ends by the source's clock", ended.Load)
}

// TestProlongedInCopy prolongs an override for good, and starts from the copy,
// which holds both: the first of them does not end it.
func TestProlongedInCopy(t *testing.T) {
	db, copy := openDB(t), filepath.Join(t.TempDir(), "last.copy")
	publish(t, db, "5/m")
	o := rulesource.Override{Rule: "site", Key: "192.0.2.7", Limits: []string{"9/m"}}
	override(t, db, o, 1500*time.Millisecond)
	n := mustStart(t, db, copy)
	override(t, db, o, 0)
	await.Until(t, "the change", func() bool { v, _ := n.source.Held(); return v.Change == 2 })
	n.stop()
	n = mustStart(t, gone{}, copy)
	time.Sleep(2 * time.Second)
	if got := n.decided(t, "192.0.2.7"); got != "9/1m" {
		t.Errorf("from the copy: %s, want 9/1m", got)
	}
}

// TestCopyShared has two nodes of one machine keep their copy in one file: it
// is whole, and has what the last of them took.
func TestCopyShared(t *testing.T) {
	db, copy := openDB(t), filepath.Join(t.TempDir(), "last.copy")
	publish(t, db, "5/m")
	nodes := []*node{mustStart(t, db, copy), mustStart(t, db, copy)}
	for i := range 20 {
		limits(t, db, "192.0.2.7", []string{"9/m", "8/m"}[i%2])
		if i == 10 {
			publish(t, db, "6/m")
		}
	}
	limits(t, db, "192.0.2.8", "7/m")
	for _, n := range nodes {
		await.Until(t, "the last change", func() bool { return n.decided(t, "192.0.2.8") == "7/1m" })
		await.Until(t, "it has a copy", func() bool { return n.problem() == "" })
	}
	for _, n := range nodes {
		n.stop()
	}
	n := mustStart(t, gone{}, copy)
	for ip, want := range map[string]string{"192.0.2.1": "6/1m", "192.0.2.7": "8/1m", "192.0.2.8": "7/1m"} {
		if got := n.decided(t, ip); got != want {
			t.Errorf("from the copy: %s by %s, want %s", ip, got, want)
		}
	}
}
