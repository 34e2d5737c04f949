package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// NodeKeys are a store on a cluster, and keys on every node of it. It counts what
// passed of each key.
type nodeKeys struct {
	testing.TB
	*redistest.Cluster
	store *redisstore.Store
	wide  stint.Bound
	keys  map[*redistest.Server][]string // of each node
	tags  map[string]string              // of each key: what decides where it is

	mu     sync.Mutex
	passed map[string]int64
}

func newNodeKeys(t testing.TB, c *redistest.Cluster) *nodeKeys {
	t.Helper()
	o := redisstore.Options{URL: c.URL()}
	o.Timeout, o.Prefix = within, fmt.Sprint("spread", prefixes.Add(1))
	s := &nodeKeys{TB: t, Cluster: c, store: openPlain(t, o), keys: make(map[*redistest.Server][]string), tags: make(map[string]string), passed: make(map[string]int64)}
	s.wide = s.bind("1000000/100000h")
	for i := range 48 {
		key := fmt.Sprint("key", i)
		eventually(t, "the store does not decide at first", func() bool { return s.take(key) == nil })
	}
	for _, node := range c.Masters() {
		for name := range strings.Lines(node.CLI(t, "--scan", "--pattern", o.Prefix+":{*")) {
			name = strings.TrimSpace(name)
			tag, _, _ := strings.Cut(strings.TrimPrefix(name, o.Prefix+":{"), "}")
			key := name[strings.LastIndexByte(name, ':')+1:]
			s.keys[node], s.tags[key] = append(s.keys[node], key), tag
		}
		if len(s.keys[node]) < 4 {
			t.Fatalf("%d keys at one of the nodes", len(s.keys[node]))
		}
	}
	return s
}

func (s *nodeKeys) bind(text string) stint.Bound {
	s.Helper()
	b, err := s.store.Bind(text, parse(s, text))
	if err != nil {
		s.Fatal(err)
	}
	return b
}

// take takes a unit of each key, in one request.
func (s *nodeKeys) take(keys ...string) error {
	var layers []stint.Layer
	for _, key := range keys {
		layers = append(layers, stint.Layer{Bound: s.wide, Key: key})
	}
	d, err := s.store.Decide(ctx, meter.OpTake, layers, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.passed[key] += d.Taken
	}
	return err
}

// exact holds every key to what was counted, but for one of which so many may stand
// as charged besides.
func (s *nodeKeys) exact(but string, more int64) {
	s.Helper()
	for key := range s.tags {
		var d stint.Decision
		eventually(s, "the store does not answer what is used", func() (ok bool) {
			var err error
			d, err = s.wide.Decide(ctx, meter.OpPeek, key, 1)
			return err == nil
		})
		beside, most := d.Limit-d.Remaining-s.passed[key], int64(0)
		if key == but {
			most = more
			s.Logf("%s: %d units are used that did not pass, of at most %d", key, beside, most)
		}
		if beside < 0 || beside > most {
			s.Errorf("%s: %d units are used, %d passed", key, d.Limit-d.Remaining, s.passed[key])
		}
	}
}

// failing asks from several goroutines, which all have to fail for one of the reasons,
// while do is done. It returns how many were told that they may stand as charged.
func (s *nodeKeys) failing(reasons []string, ask func() error, do func()) int64 {
	s.Helper()
	var asked, stand atomic.Int64
	stop := Load(s, 8, time.Millisecond, func(int) {
		err := ask()
		asked.Add(1)
		if errors.Is(err, redisstore.ErrAmbiguous) {
			stand.Add(1)
		} else if !errors.Is(err, redisstore.ErrNotExecuted) || errors.Is(err, redisstore.ErrUnavailable) {
			s.Errorf("told %v", err)
		}
		if !among(err, reasons) {
			s.Errorf("told %v, want one of %q", err, reasons)
		}
	})
	for asked.Load() < 100 && !s.Failed() {
		time.Sleep(time.Millisecond)
	}
	do()
	stop()
	return stand.Load()
}

func among(err error, reasons []string) bool {
	for _, reason := range reasons {
		if err != nil && strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return false
}

// Unserved has no node of a cluster serve one of its slots, as one of them sees it and
// then all. Requests for the slot are told so, and those with another key too; both
// charge nothing. Other slots, those of the same node too, are decided as before.
func Unserved(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	for _, node := range c.Nodes {
		node.CLI(t, "config", "set", "cluster-require-full-coverage", "no")
	}
	for name, all := range map[string]bool{"for its node": false, "for all": true} {
		t.Run(name, func(t *testing.T) {
			s := newNodeKeys(t, c)
			owner := c.Nodes[0]
			lost, beside := s.keys[owner][0], ""
			slot := strings.TrimSpace(owner.CLI(t, "cluster", "keyslot", s.tags[lost]))
			var others []string
			for key, tag := range s.tags {
				if tag != s.tags[lost] {
					others = append(others, key)
				}
			}
			for _, key := range s.keys[owner] {
				if s.tags[key] != s.tags[lost] {
					beside = key
				}
			}
			serve := func() {
				owner.CLI(t, "cluster", "addslots", slot)
				for _, node := range c.Nodes {
					eventually(t, "a node does not know who serves the slot", func() bool {
						return strings.Contains(node.CLI(t, "cluster", "info"), "cluster_slots_assigned:16384")
					})
				}
			}
			t.Cleanup(serve) // for the next, whatever comes
			for _, node := range c.Nodes {
				if node == owner || all {
					node.CLI(t, "cluster", "delslots", slot)
				}
			}
			reasons := []string{"Hash slot not served", "no node"}
			eventually(t, "the slot is still served", func() bool { return among(s.take(lost), reasons) })
			s.failing(reasons, func() error { return s.take(lost) }, func() {
				for range 20 {
					for _, key := range others {
						if err := s.take(key); err != nil {
							t.Fatalf("%s, of a slot that is served: %v", key, err)
						}
					}
					if err := s.take(lost, beside); !among(err, reasons) {
						t.Errorf("with another key: %v", err)
					}
				}
				if n := s.store.Stats().Open; n != 0 {
					t.Errorf("%d breakers are open", n)
				}
			})
			serve()
			eventually(t, "the slot is not decided again", func() bool { return s.take(lost) == nil })
			s.exact("", 0)
		})
	}
}

// FullNode has one node of a cluster run out of memory. What would write there is told
// so, and charges nothing there, and elsewhere no more of a key that hundreds of such
// requests name than they are told may stand; what is denied is denied; other nodes go on,
// also with new keys; and reservations can be settled when there is memory again.
func FullNode(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	s := newNodeKeys(t, c)
	full := c.Nodes[0]
	there := s.keys[full]
	var others []string
	for _, node := range c.Nodes[1:] {
		others = append(others, s.keys[node]...)
	}
	narrow := s.bind("1/100000h")
	exhausted := stint.Layer{Bound: narrow, Key: there[0]}
	for range 2 { // the second is denied
		if _, err := s.store.Decide(ctx, meter.OpTake, []stint.Layer{exhausted}, 1); err != nil {
			t.Fatal(err)
		}
	}
	pair := []stint.Layer{{Bound: s.wide, Key: there[1]}, {Bound: s.wide, Key: others[0]}}
	_, id, err := s.store.Reserve(ctx, pair, 5, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	full.CLI(t, "config", "set", "maxmemory", "1")
	oom := []string{"OOM"}
	asked, reserved := 0, int64(0)
	stand := s.failing(oom, func() error { return s.take(there[2], others[1]) }, func() {
		for round := range 20 {
			for _, key := range others {
				if err := s.take(key); err != nil {
					t.Fatalf("%s, of another node: %v", key, err)
				}
			}
			if err := s.take(there[3]); !among(err, oom) {
				t.Errorf("by itself: %v", err)
			}
			switch _, id, err := s.store.Reserve(ctx, pair, 1, time.Hour); {
			case err == nil && id != "": // what writes elsewhere first is let through
				reserved++
			case !among(err, oom) || id != "":
				t.Errorf("a reservation: %q, %v", id, err)
			}
			if _, err := s.store.Settle(ctx, id, 2); err != nil && !among(err, oom) {
				t.Errorf("settled: %v", err)
			}
			asked += s.newKeys(narrow, oom, round)
		}
		if st := s.store.Stats(); st.Open != 0 {
			t.Errorf("%d breakers are open", st.Open)
		}
	})
	for range 20 { // by itself: a call of many fails as a whole
		if d, err := s.store.Decide(ctx, meter.OpTake, []stint.Layer{exhausted}, 1); err != nil || d.Allowed {
			t.Errorf("denied before: %+v, %v", d, err)
		}
	}
	if asked < 100 {
		t.Errorf("%d new keys were decided on the nodes that have memory", asked)
	}
	full.CLI(t, "config", "set", "maxmemory", "0")
	for _, key := range there {
		eventually(t, "what had no memory does not decide again", func() bool { return s.take(key) == nil })
	}
	for range 2 { // again is the same
		if _, err := s.store.Settle(ctx, id, 2); err != nil {
			t.Errorf("settled at last: %v", err)
		}
	}
	s.passed[pair[0].Key] += 2 + reserved
	s.passed[pair[1].Key] += 2 + reserved
	s.exact(others[1], stand)
}

// newKeys takes what there is of keys that nobody has used, and returns how many had
// it: all but those of a node without memory.
func (s *nodeKeys) newKeys(narrow stint.Bound, reasons []string, round int) (had int) {
	for i := range 20 {
		d, err := narrow.Decide(ctx, meter.OpTake, fmt.Sprint("new ", round, " ", i), 1)
		switch {
		case err == nil && d.Allowed:
			had++
		case err == nil:
			s.Errorf("a new key is denied: %+v", d)
		case !among(err, reasons):
			s.Errorf("a new key: %v", err)
		}
	}
	return had
}

// KilledBetween kills a master with requests on their way that have a key there and one
// on a node that stays: takes, and reservations that are settled for less. Of the key
// that stays, exactly what passed is used; calls of which no answer came, and
// reservations that the failover forgot, may stand as charged, for no more than their
// cost. Of a narrow limit there, no more passes than it holds, whatever is forgotten
// where the master was.
func KilledBetween(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1)
	s := newNodeKeys(t, c)
	dead, stays := c.Nodes[0], c.Nodes[1]
	k := &between{nodeKeys: s, there: s.keys[dead][0], here: s.keys[stays][0], narrow: s.bind("300/100000h")}
	k.least, k.most = s.passed[k.here], s.passed[k.here]
	stop := Load(t, 12, time.Millisecond, func(caller int) {
		if caller%2 == 0 {
			k.reserve()
		} else {
			k.take()
		}
	})
	k.until(100)
	c.NodeTimeout(t, time.Second)
	dead.Kill()
	eventually(t, "nobody is elected", func() bool { return len(c.Masters()) == 3 })
	k.until(100)
	stop()
	k.judge()
}

// between is a pair of keys of two nodes, of which one is killed, and what may be used
// of the other.
type between struct {
	*nodeKeys
	there, here string
	narrow      stint.Bound

	mu                         sync.Mutex
	least, most                int64 // of the wide limit
	narrowLeast, narrowMost    int64
	done, ambiguous, forgotten int
}

func (k *between) layers(here stint.Bound) []stint.Layer {
	return []stint.Layer{{Bound: k.wide, Key: k.there}, {Bound: here, Key: k.here}}
}

// take takes a unit of both limits, in two requests.
func (k *between) take() {
	for _, here := range []stint.Bound{k.wide, k.narrow} {
		d, err := k.store.Decide(ctx, meter.OpTake, k.layers(here), 1)
		least, most := &k.least, &k.most
		if here == k.narrow {
			least, most = &k.narrowLeast, &k.narrowMost
		}
		k.note(least, most, d.Taken, 1, err)
	}
}

// reserve takes four units, and settles for one.
func (k *between) reserve() {
	_, id, err := k.store.Reserve(ctx, k.layers(k.wide), 4, time.Hour)
	if err != nil {
		k.note(&k.least, &k.most, 0, 4, err)
		return
	}
	eventually(k, "a reservation is neither settled nor forgotten", func() bool {
		_, err = k.store.Settle(ctx, id, 1)
		return err == nil || errors.Is(err, stint.ErrReservation)
	})
	k.note(&k.least, &k.most, 1, 4, err)
}

// note adds what an answer says is used, and what may be, where there is none.
func (k *between) note(least, most *int64, taken, atMost int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*least += taken
	switch {
	case err == nil:
		*most += taken
		k.done++
	case errors.Is(err, stint.ErrReservation):
		*most += atMost
		k.forgotten++
	case errors.Is(err, redisstore.ErrAmbiguous):
		*most += atMost
		k.ambiguous++
	case !errors.Is(err, redisstore.ErrNotExecuted):
		k.Errorf("an error that is none of a failover: %v", err)
	}
}

// until waits for answers.
func (k *between) until(more int) {
	k.Helper()
	answered := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.done
	}
	before := answered()
	eventually(k, "no answers", func() bool { return answered()-before >= more })
}

func (k *between) judge() {
	k.Helper()
	for _, of := range []struct {
		limit       stint.Bound
		least, most int64
	}{{k.wide, k.least, k.most}, {k.narrow, k.narrowLeast, min(k.narrowMost, 300)}} {
		d, err := of.limit.Decide(ctx, meter.OpPeek, k.here, 1)
		if err != nil {
			k.Fatal(err)
		}
		used := d.Limit - d.Remaining
		if used < of.least || used > of.most {
			k.Errorf("%s: %d units are used, want from %d to %d", of.limit.Name(), used, of.least, of.most)
		}
		k.Logf("%s: %d units are used, of %d to %d", of.limit.Name(), used, of.least, of.most)
	}
	k.Logf("%d answers, %d without one, %d reservations forgotten", k.done, k.ambiguous, k.forgotten)
}
