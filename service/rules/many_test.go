package rules_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/statefile"
)

// A many source gives n customers another limit with each change.
type many struct {
	n        int
	lasts    time.Duration // each override; 0 is without an end
	newest   atomic.Int64
	wholes   atomic.Int64
	failures atomic.Int64 // readings that will break off at their end
	handed   func()       // before a reading ends
	changed  chan struct{}
}

func (m *many) Load(_ context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	s := &rulesource.Snapshot{Version: rulesource.Version{Identity: "m", Revision: 1, Change: m.newest.Load()}, Name: "stint.yaml", Hash: "h"}
	whole := held.Identity == ""
	if whole {
		s.Document = []byte("rules: [{name: site, key: [ip], limits: [5/m]}]\n")
	}
	if err := to.Begin(s, whole); err != nil {
		return nil, err
	}
	if whole {
		m.wholes.Add(1)
	}
	var ends time.Time
	if m.lasts > 0 {
		ends = time.Now().Add(m.lasts)
	}
	for i := range m.n {
		if err := to.Override(&rulesource.Override{Rule: "site", Key: addressOf(i), Limits: []string{fmt.Sprintf("%d/m", 100+s.Version.Change)}, Expires: ends}); err != nil {
			return nil, err
		}
	}
	m.handed()
	if m.failures.Add(-1) >= 0 {
		return nil, errors.New("the connection is lost")
	}
	return s, nil
}

func addressOf(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }

func (m *many) Wait(ctx context.Context, held rulesource.Version) error {
	for m.newest.Load() == held.Change {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.changed:
		}
	}
	return nil
}

func (m *many) Close() error { return nil }

// TestManyChanges: of changes that are more than a node takes one by one, it reads
// everything anew. Either way nothing is in force before all is read, nor if the reading
// breaks off, and all is in the end.
func TestManyChanges(t *testing.T) {
	for n, wholes := range map[int]int64{rules.MostChanges: 0, rules.MostChanges + 1: 2} {
		synctest.Test(t, func(t *testing.T) {
			m := &many{n: n, handed: func() {}, changed: make(chan struct{}, 1)}
			node := mustStart(t, m, "")
			first, last := addressOf(0), addressOf(n-1)
			m.handed = func() {
				if a, b := node.decided(t, first), node.decided(t, last); a != "100/1m" || b != "100/1m" {
					t.Errorf("%d changes: %s and %s before all is read", n, a, b)
				}
			}
			m.wholes.Store(0)
			m.failures.Store(1)
			m.newest.Store(1)
			m.changed <- struct{}{}
			await.Until(t, "it is held", func() bool { v, problem := node.source.Held(); return v.Change == 1 && problem == "" })
			if a, b := node.decided(t, first), node.decided(t, last); a != "101/1m" || b != "101/1m" {
				t.Errorf("%d changes: %s and %s in the end", n, a, b)
			}
			if got := m.wholes.Load(); got != wholes {
				t.Errorf("%d changes: everything was read %d times, want %d", n, got, wholes)
			}
			node.stop()
		})
	}
}

// TestManyEndings puts many overrides that end in force: what there is to do for each is
// done with pauses while they are read, and all of them end.
func TestManyEndings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &many{n: rules.MostChanges + 1, lasts: time.Minute, handed: func() {}, changed: make(chan struct{}, 1)}
		node := mustStart(t, m, "")
		var read, inForce runtime.MemStats
		m.handed = func() { runtime.ReadMemStats(&read) }
		m.newest.Store(1)
		m.changed <- struct{}{}
		last := addressOf(m.n - 1)
		await.Until(t, "it is held", func() bool { v, _ := node.source.Held(); return v.Change == 1 })
		if runtime.ReadMemStats(&inForce); inForce.Mallocs-read.Mallocs > uint64(m.n/2) {
			t.Errorf("%d allocations behind the reading of %d overrides", inForce.Mallocs-read.Mallocs, m.n)
		}
		if got := node.decided(t, last); got != "101/1m" {
			t.Errorf("%s in force", got)
		}
		time.Sleep(m.lasts)
		await.Until(t, "it ends", func() bool { return node.decided(t, last) == "5/1m" })
		node.stop()
	})
}

// TestBlocksStay: while a source changes overrides, or replaces all of them, what
// operators blocked beside it is denied at every moment; then the source's holds again.
func TestBlocksStay(t *testing.T) {
	for n, last := range map[int]int64{10: 20, rules.MostChanges + 1: 2} {
		m := &many{n: n, handed: func() {}, changed: make(chan struct{}, 1)}
		node := mustStart(t, m, "")
		operators, err := statefile.Open(statefile.Options{Source: node.source, Writes: true})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 { // more than one, so that to set all again would take a while
			o := rulesource.Override{Rule: "site", Key: addressOf(i), Block: true}
			if _, _, err := operators.SetOverride(t.Context(), o, 0); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for m.newest.Load() < last {
				m.newest.Add(1)
				m.changed <- struct{}{}
				await.Until(t, "it is held", func() bool { v, _ := node.source.Held(); return v.Change == m.newest.Load() })
			}
		}()
		for changing := true; changing; {
			select {
			case <-done:
				changing = false
			default:
			}
			if got := node.decided(t, addressOf(7)); got != "block" {
				t.Fatalf("%d overrides: decided by %s", n, got)
			}
		}
		if _, _, err := operators.SetOverride(t.Context(), rulesource.Override{Rule: "site", Key: addressOf(7), Removed: true}, 0); err != nil {
			t.Fatal(err)
		}
		if got, want := node.decided(t, addressOf(7)), fmt.Sprintf("%d/1m", 100+last); got != want {
			t.Errorf("%d overrides: decided by %s, want %s", n, got, want)
		}
		node.stop()
	}
}
