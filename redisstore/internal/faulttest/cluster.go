package faulttest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A spread is a store on a cluster, and keys on every node of it. It counts what
// passed of each key.
type spread struct {
	testing.TB
	*redistest.Cluster
	store *redisstore.Store
	wide  stint.Bound
	keys  map[*redistest.Server][]string // of each node
	tags  map[string]string              // of each key: what decides where it is

	mu     sync.Mutex
	passed map[string]int64
}

func newSpread(t testing.TB, client Client, c *redistest.Cluster) *spread {
	t.Helper()
	place := Place{Cluster: true}
	for _, node := range c.Nodes {
		place.Addrs = append(place.Addrs, node.Addr)
	}
	o := client(t, place)
	o.Timeout, o.Prefix = within, fmt.Sprint("spread", prefixes.Add(1))
	s := &spread{TB: t, Cluster: c, store: open(t, o), keys: make(map[*redistest.Server][]string), tags: make(map[string]string), passed: make(map[string]int64)}
	s.wide = s.bind("1000000/100000h")
	for i := range 48 {
		key := fmt.Sprint("key", i)
		eventually(t, "the store does not decide at first", func() bool { return s.take(key) == nil })
	}
	for _, node := range c.Nodes {
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

func (s *spread) bind(text string) stint.Bound {
	s.Helper()
	b, err := s.store.Bind(text, parse(s, text))
	if err != nil {
		s.Fatal(err)
	}
	return b
}

// take takes a unit of each key, in one request.
func (s *spread) take(keys ...string) error {
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

// exact holds every key to what was counted.
func (s *spread) exact() {
	s.Helper()
	for key := range s.tags {
		var d stint.Decision
		eventually(s, "the store does not answer what is used", func() (ok bool) {
			var err error
			d, err = s.wide.Decide(ctx, meter.OpPeek, key, 1)
			return err == nil
		})
		if used := d.Limit - d.Remaining; used != s.passed[key] {
			s.Errorf("%s: %d units are used, %d passed", key, used, s.passed[key])
		}
	}
}

// failing asks from several goroutines, which all have to fail for one of the reasons,
// while do is done.
func (s *spread) failing(reasons []string, ask func() error, do func()) {
	s.Helper()
	var asked atomic.Int64
	done := make(chan struct{})
	var callers sync.WaitGroup
	defer callers.Wait()
	defer close(done)
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}
				err := ask()
				asked.Add(1)
				if !errors.Is(err, redisstore.ErrNotExecuted) || errors.Is(err, redisstore.ErrUnavailable) || !among(err, reasons) {
					s.Errorf("told %v, want one of %q", err, reasons)
					return
				}
			}
		})
	}
	for asked.Load() < 100 && !s.Failed() {
		time.Sleep(time.Millisecond)
	}
	do()
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
func Unserved(t *testing.T, client Client) {
	c := redistest.StartCluster(t, 3, 0)
	for _, node := range c.Nodes {
		node.CLI(t, "config", "set", "cluster-require-full-coverage", "no")
	}
	for name, all := range map[string]bool{"for its node": false, "for all": true} {
		t.Run(name, func(t *testing.T) {
			s := newSpread(t, client, c)
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
			s.exact()
		})
	}
}
