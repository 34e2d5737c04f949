package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// sums adds up what the masters of a cluster say of themselves.
func sums(t *testing.T, c *redistest.Cluster) (keys, scripts, changes int) {
	t.Helper()
	for _, s := range c.Nodes {
		keys += int(redistest.Number(s.CLI(t, "dbsize"), ""))
		changes += int(dirty(t, s))
		scripts += int(callsOf(t, s, "evalsha"))
	}
	return keys, scripts, changes
}

// spread are keys in slots all over a cluster.
func spread() (keys []string) {
	for i := range 48 {
		keys = append(keys, fmt.Sprint("key ", i))
	}
	return keys
}

// knows waits until the store knows which node serves which slots: then a request
// on one node is one call.
func knows(t *testing.T, store *redisstore.Store) {
	t.Helper()
	limit := bind(t, store, "1000000/s burst 1000000")
	eventually(t, "the store does not know the cluster", func() bool {
		if _, err := limit.Decide(ctx, meter.OpPeek, "a", 1); err != nil {
			t.Fatal(err)
		}
		return store.KnowsNodes()
	})
	for _, key := range spread() {
		if _, err := limit.Decide(ctx, meter.OpPeek, key, 1); err != nil { // the script is everywhere
			t.Fatal(err)
		}
	}
}

// An apart is a store on a cluster, whose calls a test may come between, and one beside it.
type apart struct {
	*hooked
	c            *redistest.Cluster
	store, plain *redisstore.Store
	prefix       string
}

func newApart(t *testing.T, o redisstore.Options) *apart {
	t.Helper()
	c := redistest.StartCluster(t, 3, 0)
	driver := redisstore.NewDriver(client(t, c.Nodes[0].Addr))
	o.Prefix = fmt.Sprint("apart", prefixes.Add(1))
	a := &apart{hooked: &hooked{Driver: driver, Topology: driver.(redisstore.Topology)}, c: c, prefix: o.Prefix, plain: open(t, c.URL(), o)}
	o.Driver = a.hooked
	a.store = open(t, "", o)
	knows(t, a.store)
	return a
}

// slot returns the slot of a key under any limit, and what names its node.
func (a *apart) slot(key string) (slot uint16, node string) {
	slot = redisstore.Slot(redisstore.State(redisstore.Options{Prefix: a.prefix}, key, "x"))
	return slot, a.store.NodeName(slot)
}

// keys returns a key on another node than that of key, and one on the same node in another
// slot.
func (a *apart) keys(key string) (other, near string) {
	slot, node := a.slot(key)
	for i := 0; other == "" || near == ""; i++ {
		k := fmt.Sprint(key, " apart ", i)
		if s, n := a.slot(k); n != node {
			other = k
		} else if s != slot {
			near = k
		}
	}
	return other, near
}

// refuse has the node of a key refuse what begins with one of the verbs, until allow is
// called.
func (a *apart) refuse(key string, err redisstore.ReplyError, verbs ...string) (allow func()) {
	_, away := a.slot(key)
	refuses := func(key, verb string) error {
		if slices.Contains(verbs, verb) && a.store.NodeName(redisstore.Slot(key)) == away {
			return err
		}
		return nil
	}
	a.refuses.Store(&refuses)
	return func() { a.refuses.Store(nil) }
}

// TestNodes counts what requests with keys in several slots cost a cluster: on one
// node one call; on two one round of calls when it is denied, after which nothing
// is there that was not before, and two when it passes.
func TestNodes(t *testing.T) {
	need.Time(t)
	t.Parallel()
	a := newApart(t, redisstore.Options{NewKeys: -1})
	c, store := a.c, a.store
	user, ip := bind(t, store, "3/24h"), bind(t, store, "1000000/24h fixed_window")
	ask := func(name, key string, want stint.Decision, calls, newKeys int) {
		t.Helper()
		keys, scripts, changes := sums(t, c)
		d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: ip, Key: key}, {Bound: user, Key: name}}, 1)
		if err != nil || d.Allowed != want.Allowed || d.Denied != want.Denied {
			t.Errorf("%s and %s: %+v, %v", name, key, d, err)
		}
		afterKeys, afterScripts, afterChanges := sums(t, c)
		if afterScripts-scripts != calls || afterKeys-keys != newKeys || !want.Allowed && afterChanges != changes {
			t.Errorf("%s and %s: %d calls, %d new keys, %d changes: want %d, %d", name, key, afterScripts-scripts, afterKeys-keys, afterChanges-changes, calls, newKeys)
		}
	}
	other, near := a.keys("mallory")
	passes, denied := stint.Decision{Allowed: true}, stint.Decision{Denied: 2}
	ask("mallory", near, passes, 1, 2)
	ask("mallory", other, passes, 4, 1)
	ask("mallory", near, passes, 1, 0)
	ask("mallory", near, denied, 1, 0)
	ask("mallory", other, denied, 2, 0)
}

// TestNodesFlood has a client that is over its limit come from ever new addresses:
// whatever it sends, nothing is kept of it, and keys that are known use nothing of
// the budget for new ones.
func TestNodesFlood(t *testing.T) {
	need.Time(t)
	t.Parallel()
	a := newApart(t, redisstore.Options{NewKeys: 50})
	c, store := a.c, a.store
	user, ip := bind(t, store, "1/24h"), bind(t, store, "1000000/24h")
	take(t, user, "mallory", 1)
	keys, _, _ := sums(t, c)
	for i := range 1000 {
		d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: ip, Key: fmt.Sprint("address ", i)}, {Bound: user, Key: "mallory"}}, 1)
		if err != nil || d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if after, _, _ := sums(t, c); after != keys {
		t.Errorf("1,000 denied requests left %d keys", after-keys)
	}
	var layers []stint.Layer
	for i := range 4 {
		layers = append(layers, stint.Layer{Bound: ip, Key: fmt.Sprint("known ", i)})
	}
	for range 300 {
		if d, err := store.Decide(ctx, meter.OpTake, layers, 1); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if n := store.Stats().Overflowed; n != 0 {
		t.Errorf("known keys were decided on overflow keys %d times", n)
	}
	shows(t, "what a denial leaves behind", "nothing, on however many nodes")
}

// A hooked driver does something before the first charge of a request.
type hooked struct {
	redisstore.Driver
	redisstore.Topology
	mu     sync.Mutex
	before func()
	back   func() // does it before what was charged is given back

	refuses atomic.Pointer[func(key, verb string) error] // what a node answers in place of doing it, or nil
}

func (h *hooked) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	if strings.EqualFold(args[0], "k") {
		h.mu.Lock()
		if do := h.before; do != nil {
			h.before = nil
			do()
		}
		h.mu.Unlock()
	}
	if args[0] == "y" || args[0] == "X" && slices.Contains(args[:4], "y") {
		h.mu.Lock()
		if do := h.back; do != nil {
			h.back = nil
			do()
		}
		h.mu.Unlock()
	}
	if refuses := h.refuses.Load(); refuses != nil {
		if err := (*refuses)(keys[0], args[0]); err != nil {
			return nil, err
		}
	}
	return h.Driver.EvalSHA(ctx, sha, keys, args)
}

// TestGivenBack lets time pass between a charge that another node denied and its
// giving back: what time has forgiven is not given back a second time.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	now := atomic.Int64{}
	now.Store(972 * int64(500*time.Hour)) // where a window of 500 hours begins: none ends before the test does
	h := newApart(t, redisstore.Options{Now: now.Load})
	store, plain := h.store, h.plain
	for i, text := range []string{"4/24h", "4/24h leaky_queue", "7/25h", "4/24h token_bucket_interval", "4/24h fixed_window", "4/24h fixed_window from first", "4/24h sliding_log", "4/24h sliding_counter"} {
		mine := fmt.Sprint("mine ", i)
		last, _ := h.keys(mine)
		limit, one := bind(t, store, text), bind(t, store, "1/500h fixed_window")
		h.before = func() {
			take(t, bind(t, plain, "1/500h fixed_window"), last, 1)
			now.Add(int64(48 * time.Hour))
		}
		h.back = func() {
			take(t, bind(t, plain, text), mine, 3)
		}
		d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: limit, Key: mine}, {Bound: one, Key: last}}, 1)
		if err != nil || d.Allowed || h.back != nil {
			t.Errorf("%s: %+v, %v, given back %t", text, d, err, h.back == nil)
		}
		// On a slow machine the charge may leave after the 48 hours only. A queue
		// then gives nothing back: requests behind keep their delays.
		d = take(t, limit, mine, 0)
		reported := strings.HasSuffix(text, "leaky_queue") && d.Remaining == d.Limit-4
		if d.Remaining != d.Limit-3 && !reported {
			t.Errorf("%s: %d of %d remain after 3 were taken: the charge was given back, by time or by the store, once", text, d.Remaining, d.Limit)
		}
	}
}

// TestNotGivenBack has a node refuse its charge while a reservation of the key that was
// charged elsewhere is settled: what then stands may not be told as not executed.
func TestNotGivenBack(t *testing.T) {
	t.Parallel()
	h := newApart(t, redisstore.Options{Timeout: patience})
	store := h.store
	for i, test := range []struct{ opened, settled bool }{{false, false}, {true, true}, {false, true}} {
		mine := fmt.Sprint("mine ", i)
		there, _ := h.keys(mine)
		limit := bind(t, store, "100/24h")
		layers := []stint.Layer{{Bound: limit, Key: mine}, {Bound: limit, Key: there}}
		take(t, limit, mine, 2)
		var id stint.ReservationID
		reserve := func() {
			var err error
			if _, id, err = store.Reserve(ctx, layers[:1], 4, time.Hour); err != nil {
				t.Error(err)
			}
		}
		if test.opened {
			reserve()
		}
		allow := h.refuse(there, "READONLY it is not the master any more", "k", "K")
		h.back = func() {
			if test.settled && !test.opened {
				reserve()
			}
			if !test.settled {
				return
			}
			if _, err := store.Settle(ctx, id, 0); err != nil {
				t.Error(err)
			}
		}
		_, err := store.Decide(ctx, meter.OpTake, layers, 1)
		allow()
		d := take(t, limit, mine, 0)
		t.Logf("%+v: %d of %d remain, %v", test, d.Remaining, d.Limit, err)
		if used := d.Limit - d.Remaining; used > 2 && !errors.Is(err, redisstore.ErrAmbiguous) || used > 3 || !test.settled && used > 2 {
			t.Errorf("%+v: %d units stand of 2, and the request ended with: %v", test, used, err)
		}
		if !test.settled && !errors.Is(err, redisstore.ErrNotExecuted) || h.back != nil {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// TestOvertaken has another request take the last unit of one node between the
// look and the charge: what the others were charged comes back to the unit, and
// nothing is left beside.
func TestOvertaken(t *testing.T) {
	need.Time(t)
	t.Parallel()
	noon := func() int64 { return time.Date(2030, 5, 5, 12, 0, 0, 0, time.UTC).UnixNano() } // no day ends
	h := newApart(t, redisstore.Options{Now: noon})
	c, store, plain := h.c, h.store, h.plain
	for i, text := range []string{
		"5/24h", "5/24h burst 9", "7/25h", "5/24h leaky_queue", "5/24h burst 9 token_bucket_interval", "5/24h fixed_window",
		"5/24h sliding_log", "5/24h sliding_counter", "5/24h sliding_buckets", "5 per day in UTC", "1/60000h burst 4",
	} {
		mine := fmt.Sprint("mine ", i)
		last, _ := h.keys(mine)
		limit, one := bind(t, store, text), bind(t, store, "1/24h fixed_window")
		take(t, limit, mine, 2)
		before, err := limit.Decide(ctx, meter.OpPeek, mine, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Reset(ctx, []stint.Layer{{Bound: one, Key: last}}); err != nil {
			t.Fatal(err)
		}
		keys, _, _ := sums(t, c)
		h.before = func() { take(t, bind(t, plain, "1/24h fixed_window"), last, 1) }
		d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: limit, Key: mine}, {Bound: one, Key: last}}, 1)
		if err != nil || d.Allowed || d.Denied != 2 || h.before != nil {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
		after, err := limit.Decide(ctx, meter.OpPeek, mine, 0)
		if err != nil || after.Remaining != before.Remaining || after.ResetAfter > before.ResetAfter {
			t.Errorf("%s: %+v after what was given back, %+v before: %v", text, after, before, err)
		}
		if n, _, _ := sums(t, c); n != keys+1 { // that of the other request
			t.Errorf("%s: %d keys, %d before", text, n, keys)
		}
	}
}

// TestResetApart has reservations in two slots, of which one key was reset: nothing is given
// back, nor more taken, in either.
func TestResetApart(t *testing.T) {
	t.Parallel()
	a := newApart(t, redisstore.Options{})
	there, _ := a.keys("here")
	for text, verb := range map[string]func(layers []stint.Layer, id stint.ReservationID) error{
		"19/24h fixed_window": func(layers []stint.Layer, id stint.ReservationID) error {
			raised := slices.Clone(layers)
			raised[0].Raises, raised[1].Raises = id, id
			_, _, err := a.store.Reserve(ctx, raised, 2, time.Hour)
			return err
		},
		"19/1000h": func(_ []stint.Layer, id stint.ReservationID) error {
			_, err := a.store.Settle(ctx, id, 2)
			return err
		},
	} {
		limit := bind(t, a.store, text)
		layers := []stint.Layer{{Bound: limit, Key: "here"}, {Bound: limit, Key: there}}
		reserve := func() stint.ReservationID {
			_, id, err := a.store.Reserve(ctx, layers, 3, time.Hour)
			if err != nil || id == "" {
				t.Fatal(id, err)
			}
			return id
		}
		if err := verb(layers, reserve()); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for i := range layers {
			id := reserve()
			if err := a.store.Reset(ctx, layers[i:i+1]); err != nil {
				t.Fatal(err)
			}
			before := peek(t, limit, layers[1-i].Key).Remaining
			if err := verb(layers, id); !errors.Is(err, stint.ErrReservation) {
				t.Errorf("%s, %q was reset: %v", text, layers[i].Key, err)
			}
			if here, other := peek(t, limit, layers[i].Key), peek(t, limit, layers[1-i].Key); here.Remaining != here.Limit || other.Remaining != before {
				t.Errorf("%s, %q was reset: %d remain there, and %d, %d before, of the other", text, layers[i].Key, here.Remaining, other.Remaining, before)
			}
		}
	}
}

// TestDeniedElsewhere has a limit count what one in another slot denies, and says
// how long that takes to pass.
func TestDeniedElsewhere(t *testing.T) {
	t.Parallel()
	store := newApart(t, redisstore.Options{}).store
	first := stint.Layer{Bound: bind(t, store, "1/1h"), Key: "key 1"}
	counts := stint.Layer{Bound: bind(t, store, "2/2h sliding_log count_denied"), Key: "key 2"}
	for i := range 2 {
		d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{first, counts}, 1)
		if err != nil || d.Allowed != (i == 0) {
			t.Fatalf("%d: %+v, %v", i, d, err)
		}
		if wait, _ := d.RetryAfter.Duration(); i == 1 && wait <= time.Hour {
			t.Errorf("denied for %v, while the log that counted it is full for two hours", wait)
		}
	}
}

// TestExcusedElsewhere has open reservations of one node excuse a denial, seen at the look or
// only at the charge: a limit of another node that counts what is denied does not count it.
func TestExcusedElsewhere(t *testing.T) {
	t.Parallel()
	h := newApart(t, redisstore.Options{})
	store, plain := h.store, h.plain
	there, _ := h.keys("here")
	counts, one := bind(t, store, "5/24h sliding_log count_denied"), bind(t, store, "1/24h")
	for _, late := range []bool{false, true} {
		layers := []stint.Layer{{Bound: counts, Key: "here"}, {Bound: one, Key: there}}
		if err := store.Reset(ctx, layers); err != nil {
			t.Fatal(err)
		}
		opens := func() {
			held := []stint.Layer{{Bound: bind(t, plain, "1/24h"), Key: there, Excuses: time.Hour}}
			if d, _, err := plain.Reserve(ctx, held, 1, time.Hour); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		}
		if late {
			h.before = opens
		} else {
			opens()
		}
		d, err := store.Decide(ctx, meter.OpTake, layers, 1)
		if err != nil || d.Allowed || h.before != nil {
			t.Errorf("late %v: %+v, %v", late, d, err)
		}
		if d := take(t, counts, "here", 0); d.Remaining != 5 {
			t.Errorf("late %v: %d of 5 remain", late, d.Remaining)
		}
	}
}
