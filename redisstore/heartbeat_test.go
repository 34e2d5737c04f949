package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A counted is a process that counts those that share its server.
type counted struct {
	*redisstore.Store
	mu       sync.Mutex
	reported []int
}

func newCounted(t *testing.T, url, prefix string) *counted {
	t.Helper()
	c := &counted{Store: open(t, url, redisstore.Options{Prefix: prefix})}
	c.count()
	return c
}

func (c *counted) count() {
	c.CountNodes(func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reported = append(c.reported, n)
	})
	c.CountNodes(nil) // does nothing
}

// last returns the count of the last call, 0 if there was none.
func (c *counted) last() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.reported) == 0 {
		return 0
	}
	return c.reported[len(c.reported)-1]
}

// awaitNodes waits, as long as the test may take, until all have counted n.
func awaitNodes(n int, all ...*counted) {
	for _, c := range all {
		for c.Nodes() != n || c.last() != n {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestCountNodes counts three processes, of which one closes its store and one
// is cut off. That one, and all of them when the server is gone, keep what they
// counted last, and a server that comes back without its memory does not lower it.
func TestCountNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	prefix := fmt.Sprint("test", prefixes.Add(1))
	stays, closes, cut := newCounted(t, server.URL(), prefix), newCounted(t, server.URL(), prefix), newCounted(t, proxy.URL(), prefix)
	other := newCounted(t, server.URL(), prefix+"other") // is not among them
	awaitNodes(3, stays, closes, cut)

	if err := closes.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.TrimSpace(server.CLI(t, "zcard", prefix+"::nodes")); n != "2" {
		t.Errorf("%s are in the set once one of three has closed its store", n)
	}
	awaitNodes(2, stays, cut)

	proxy.Set(redistest.Fault{Refuse: true})
	proxy.Reset()
	awaitNodes(1, stays)
	if n := cut.Nodes(); n != 2 {
		t.Errorf("the one that was cut off counts %d, want 2 as before", n)
	}
	proxy.Set(redistest.Fault{})
	awaitNodes(2, stays)

	server.Kill()
	time.Sleep(2 * time.Second)
	server.Restart(t)
	for range 100 { // until each has beaten several times
		for _, c := range []*counted{stays, cut} {
			if n := c.Nodes(); n != 2 {
				t.Fatalf("%d counted without the server, or just after it came back; want 2 as before", n)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	for strings.TrimSpace(server.CLI(t, "zcard", prefix+"::nodes")) != "2" {
		time.Sleep(10 * time.Millisecond)
	}
	awaitNodes(1, other)
	other.mu.Lock()
	got := fmt.Sprint(other.reported)
	other.mu.Unlock()
	if got != "[1]" {
		t.Errorf("reported %s of a store that one process uses, want [1]", got)
	}
	if n := closes.Nodes(); n != 3 {
		t.Errorf("%d after Close, want 3 as before", n)
	}
}

// TestCountNodesFar counts two processes whose requests all fail, since the server is
// farther away than they may wait.
func TestCountNodesFar(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	proxy.Set(redistest.Fault{Delay: 200 * time.Millisecond})
	var all []*counted
	for range 2 {
		c := &counted{Store: open(t, proxy.URL(), redisstore.Options{Prefix: "far", Timeout: 50 * time.Millisecond})}
		limit := bind(t, c.Store, "10/1h")
		for c.Stats().Open == 0 {
			if _, err := limit.Decide(ctx, meter.OpTake, "key", 1); err == nil {
				t.Fatal("the server is not far")
			}
		}
		c.count()
		all = append(all, c)
	}
	awaitNodes(2, all...)
}

// TestCountNodesKey looks at the set: it says nothing of the machine, and goes
// when the processes do. What stands in it from before the clock was stepped back, or
// from processes that have gone, is taken out.
func TestCountNodesKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.CLI(t, "zadd", "test::nodes", "99999999999999999", "far", "1", "past", "-inf", "strange")
	one := newCounted(t, server.URL(), "test")
	awaitNodes(1, one)
	if all := server.CLI(t, "zrange", "test::nodes", "0", "-1"); strings.Contains(all, "far\n") || len(strings.Fields(all)) != 1 {
		t.Errorf("members of the set:\n%s", all)
	}
	eventually(t, "it does not go five seconds after a beat", func() bool {
		ttl := strings.TrimSpace(server.CLI(t, "ttl", "test::nodes"))
		return len(ttl) == 1 && ttl >= "3" && ttl <= "6"
	})
	one.Close()
	if n := strings.TrimSpace(server.CLI(t, "exists", "test::nodes")); n != "0" {
		t.Error("it is there when nobody is")
	}
	one.CountNodes(nil) // of a store that is closed
}

// TestCountNodesVirtual counts no process on a virtual clock.
func TestCountNodesVirtual(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{Now: func() int64 { return 0 }})
	store.CountNodes(func(int) { t.Error("told") })
	store.Close()
	if n := store.Nodes(); n != 0 {
		t.Errorf("%d counted", n)
	}
}

// TestCompareRules has three processes share a prefix, of which one comes to have other
// rules, and then has the same again: all are told, and one of another prefix never is. None
// is told the same twice; on a machine that stands still for longer than rules count, they
// agree meanwhile.
func TestCompareRules(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	type process struct {
		rules atomic.Value
		told  chan bool
		last  bool
	}
	open := func(prefix, rules string) *process {
		p := &process{told: make(chan bool, 100)}
		p.rules.Store(rules)
		c := newCounted(t, server.URL(), prefix)
		c.CompareRulesEvery(50 * time.Millisecond)
		c.CompareRules(func() string { return p.rules.Load().(string) }, func(differ bool) { p.told <- differ })
		return p
	}
	prefix := fmt.Sprint("test", prefixes.Add(1))
	all := []*process{open(prefix, "rules of one"), open(prefix, "rules of one"), open(prefix, "rules of one")}
	apart := open(prefix+"other", "rules of its own")
	for _, differ := range []bool{true, false, true} {
		all[0].rules.Store(map[bool]string{true: "rules of another", false: "rules of one"}[differ])
		for i, p := range all {
			for done := false; !done; done = p.last == differ {
				told := <-p.told
				if told == p.last {
					t.Fatalf("process %d is told %v twice", i, told)
				}
				p.last = told
			}
		}
	}
	if len(apart.told) != 0 {
		t.Errorf("one of another prefix is told: %v", <-apart.told)
	}
}
