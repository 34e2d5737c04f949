package rules_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
)

// A counted source counts questions and what is read, and can be gone or slow.
type counted struct {
	*rulesdb.DB
	asks, wholes, overrides atomic.Int64
	gone, slow              atomic.Bool
}

func (c *counted) FindOverride(ctx context.Context, rule, key string) (rulesource.Override, error) {
	c.asks.Add(1)
	if c.gone.Load() {
		return rulesource.Override{}, errGone
	}
	if c.slow.Load() {
		time.Sleep(100 * time.Millisecond)
	}
	return c.DB.FindOverride(ctx, rule, key)
}

func (c *counted) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	return c.DB.Load(ctx, held, countedReceiver{to, c})
}

type countedReceiver struct {
	rulesource.Receiver
	c *counted
}

func (r countedReceiver) Begin(s *rulesource.Snapshot, whole bool) error {
	if whole {
		r.c.wholes.Add(1)
	}
	return r.Receiver.Begin(s, whole)
}

func (r countedReceiver) Override(o *rulesource.Override) error {
	r.c.overrides.Add(1)
	return r.Receiver.Override(o)
}

func publishOnDemand(t *testing.T, db *rulesdb.DB, mode, limit string) {
	t.Helper()
	publishText(t, db, "overrides: "+mode+"\nrules: [{name: site, key: [ip], limits: ["+limit+"]}]\n")
}

// TestOnDemand asks for overrides as customers come: once for each, also for
// those without any and for many requests at once; changes reach those that are
// known; while the database is gone, what is known holds, and for others the
// rule's own limits.
func TestOnDemand(t *testing.T) {
	db := openDB(t)
	publishOnDemand(t, db, "on_demand", "5/m")
	for i := range 100 {
		limits(t, db, fmt.Sprintf("192.0.2.%d", i), "9/m")
	}
	a := &counted{DB: db}
	n := mustStart(t, a, filepath.Join(t.TempDir(), "copy"))
	if got := a.overrides.Load(); got != 0 {
		t.Errorf("%d overrides were read at the start", got)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got := n.decided(t, "192.0.2.7"); got != "9/1m" && got != "5/1m" { // the moment may be over
				t.Errorf("decided by %s", got)
			}
		})
	}
	all.Wait()
	await.Until(t, "the override", func() bool { return n.decided(t, "192.0.2.7") == "9/1m" })
	await.Until(t, "none", func() bool { return n.decided(t, "198.51.100.1") == "5/1m" })
	asks := a.asks.Load()
	for range 20 {
		n.decided(t, "192.0.2.7")
		n.decided(t, "198.51.100.1")
	}
	if got := a.asks.Load(); got != asks || asks > 4 {
		t.Errorf("asked %d times, then %d", asks, got)
	}
	override(t, db, rulesource.Override{Rule: "site", Key: "192.0.2.7", Block: true}, 0)
	await.Until(t, "a change of one that is known", func() bool { return n.decided(t, "192.0.2.7") == "block" })
	briefly(t, db, rulesource.Override{Rule: "site", Key: "198.51.100.1", Limits: []string{"8/m"}}, 5*time.Second, func() bool { return n.decided(t, "198.51.100.1") == "8/1m" })
	await.Until(t, "it ends", func() bool { return n.decided(t, "198.51.100.1") == "5/1m" })
	a.gone.Store(true)
	if known, other := n.decided(t, "192.0.2.7"), n.decided(t, "192.0.2.8"); known != "block" || other != "5/1m" {
		t.Errorf("while the database is gone: %s and %s", known, other)
	}
	asks = a.asks.Load()
	for i := range 50 {
		n.decided(t, fmt.Sprintf("192.0.2.%d", 10+i))
	}
	if got := a.asks.Load() - asks; got > 5 {
		t.Errorf("%d customers asked a database that is gone", got)
	}
	a.gone.Store(false)
	await.Until(t, "it is back", func() bool { return n.decided(t, "192.0.2.8") == "9/1m" })
	a.slow.Store(true)
	if got := n.decided(t, "192.0.2.70"); got != "5/1m" && got != "9/1m" {
		t.Errorf("of a slow database: %s", got)
	}
	await.Until(t, "the next request knows", func() bool { return n.decided(t, "192.0.2.70") == "9/1m" })
	publishOnDemand(t, db, "in_memory", "6/m")
	await.Until(t, "all in memory", func() bool { return n.decided(t, "192.0.2.99") == "9/1m" && n.decided(t, "203.0.113.1") == "6/1m" })
	if got := a.overrides.Load(); got < 100 {
		t.Errorf("%d overrides were read", got)
	}
	publishOnDemand(t, db, "on_demand", "7/m")
	await.Until(t, "on demand again", func() bool { return n.decided(t, "192.0.2.98") == "9/1m" && n.decided(t, "203.0.113.1") == "7/1m" })
}

// TestOnDemandBounded comes with more customers than are remembered: those that
// were forgotten are asked for again, and their overrides take no room.
func TestOnDemandBounded(t *testing.T) {
	var source everyone
	held := make(map[string]bool)
	d := rules.NewOnDemand(&source, func(o *rulesource.Override) {
		if o.Removed {
			delete(held, o.Key)
		} else {
			held[o.Key] = true
		}
	})
	for i := range 4 * rules.MostHeld {
		d.Fetch("r", fmt.Sprint(i))
	}
	if len(held) > 3*rules.MostHeld+100 {
		t.Errorf("%d customers are held", len(held))
	}
	asks := source.asks.Load()
	d.Fetch("r", "0")
	if source.asks.Load() != asks+1 {
		t.Error("who was forgotten is not asked for")
	}
	asks = source.asks.Load()
	d.Fetch("r", fmt.Sprint(4*rules.MostHeld-1))
	if source.asks.Load() != asks {
		t.Error("who came lately is asked for again")
	}
}

// everyone is a source in which each customer has an override.
type everyone struct{ asks atomic.Int64 }

func (e *everyone) FindOverride(_ context.Context, rule, key string) (rulesource.Override, error) {
	e.asks.Add(1)
	return rulesource.Override{Rule: rule, Key: key, Limits: []string{"5/m"}}, nil
}
