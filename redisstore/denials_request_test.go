package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// request returns layers in mode strict, of which the first has limits on one
// key, each other has one and its place as weight, with room for answers.
func request(t testing.TB, s *redisstore.Store, key string, limits ...[]string) []stint.Layer {
	t.Helper()
	layers := make([]stint.Layer, len(limits))
	for i, texts := range limits {
		layers[i] = stint.Layer{
			Bound: bindIn(t, s, redisstore.Strict, texts...), Key: fmt.Sprint(key, i), Weight: int64(i + 1),
			Answers: make([]stint.Decision, len(texts)),
		}
	}
	return layers
}

func decide(t testing.TB, s *redisstore.Store, layers []stint.Layer, cost int64) stint.Decision {
	t.Helper()
	d, err := s.Mode(redisstore.Strict).Decide(ctx, meter.OpTake, layers, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDenialCacheRequestExact compares a store that keeps the denials of requests
// with several limits with one that asks each time: verdicts, who denied and all
// waits are the same, to the nanosecond, and of buckets all else.
func TestDenialCacheRequestExact(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range []struct {
		limits  [][]string
		buckets bool // whose answers to greater costs are known too
	}{
		{[][]string{{"5/1s", "8/10s burst 20"}}, true},
		{[][]string{{"5/1s"}, {"8/1s burst 12"}, {"40/10s leaky_queue"}}, true},
		{[][]string{{"10/1s", "900/1m fixed_window"}}, false},
		{[][]string{{"6/1s sliding_log", "10/3s sliding_counter"}, {"14/2s sliding_buckets parts 8"}, {"30/1s burst 40 token_bucket_interval"}}, false},
		{[][]string{{"90/1m burst 4", "800/1h sliding_log"}, {"2000 per day in Europe/Paris", "90/10s"}}, false},
	} {
		t.Run(fmt.Sprint(c.limits), func(t *testing.T) {
			clock, rnd := newVirtual(), rand.New(rand.NewPCG(7, 11))
			o := redisstore.Options{Now: clock.now}
			cached := nodes(t, server.URL(), 1, o)[0]
			o.Modes.DenialCache = -1
			asked := nodes(t, server.URL(), 1, o)[0]
			var of [2][2][]stint.Layer // by store and key
			for i, s := range []*redisstore.Store{cached, asked} {
				for k := range of[i] {
					of[i][k] = request(t, s, fmt.Sprint("key", k, "/"), c.limits...)
				}
			}
			before, denied := calls(t, server), int64(0)
			n := int64(3000)
			if racing {
				n = 1000
			}
			for i := range n {
				k, cost := rnd.IntN(2), int64(2)
				if c.buckets {
					cost = rnd.Int64N(4)
				}
				if clock.add(time.Duration(rnd.Int64N(int64(100 * time.Millisecond)))); rnd.IntN(200) == 0 {
					clock.add(10 * time.Second)
				}
				got, want := decide(t, cached, of[0][k], cost), decide(t, asked, of[1][k], cost)
				if !want.Allowed {
					denied++
				}
				same(t, int(i), "", got, want, c.buckets)
				for j := range of[0][k] {
					for a := range of[0][k][j].Answers {
						same(t, int(i), fmt.Sprintf("layer %d, limit %d", j, a), of[0][k][j].Answers[a], of[1][k][j].Answers[a], c.buckets)
					}
				}
			}
			spared := 2*n - (calls(t, server) - before)
			if t.Logf("%d requests, %d denied, %d of them here", n, denied, spared); spared < denied/4 || denied < n/10 || denied > n*19/20 {
				t.Errorf("of %d requests %d were denied, %d of them here", n, denied, spared)
			}
		})
	}
}

// same compares an answer that may be known with the server's.
func same(t *testing.T, i int, what string, got, want stint.Decision, all bool) {
	t.Helper()
	if !all {
		if got.Remaining > want.Remaining {
			t.Fatalf("request %d: %s: %d remain, %d asked", i, what, got.Remaining, want.Remaining)
		}
		got.Remaining, got.Limit, got.Tightest, got.ResetAfter = want.Remaining, want.Limit, want.Tightest, want.ResetAfter
	}
	if got != want {
		t.Fatalf("request %d: %s:\n%+v cached\n%+v asked", i, what, got, want)
	}
}

// TestDenialCacheRequestFlood floods requests with several limits, of which some
// are exhausted: the server is asked once in Modes.DenialCache; what is cheaper
// and what has another key is asked by itself.
func TestDenialCacheRequestFlood(t *testing.T) {
	server := redistest.Start(t)
	for _, limits := range [][][]string{
		{{"10/s", "5 per day in UTC"}},
		{{"10/s", "5/1h"}},
		{{"5/1h sliding_log", "3/2s"}},
		{{"1000/1h"}, {"10/1h sliding_counter"}},
		{{"5/1h"}, {"11/1h"}, {"20/1h leaky_queue"}},
	} {
		clock := newVirtual()
		s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
		layers := request(t, s, "k", limits...)
		another := append([]stint.Layer(nil), layers...)
		another[len(another)-1].Key = "another"
		for decide(t, s, layers, 1).Allowed {
			clock.add(3 * time.Second)
		}
		if err := s.Mode(redisstore.Strict).Reset(ctx, layers); err != nil {
			t.Fatal(err)
		}
		if d := decide(t, s, layers, 3); !d.Allowed {
			clock.add(3 * time.Second)
			for range 3 {
				decide(t, s, layers, 1)
				clock.add(3 * time.Second)
			}
		}
		before := calls(t, server)
		for range 1000 {
			if d := decide(t, s, layers, 3); d.Allowed {
				t.Fatalf("%v: %+v", limits, d)
			}
			clock.add(10 * time.Millisecond)
		}
		if n := calls(t, server) - before; n > 11 || n < 9 {
			t.Errorf("%v: %d calls for ten seconds of denials", limits, n)
		}
		before = calls(t, server)
		if d := decide(t, s, layers, 1); !d.Allowed {
			t.Errorf("%v: a cheaper cost: %+v", limits, d)
		}
		decide(t, s, layers, 3)
		decide(t, s, another, 1)
		if n := calls(t, server) - before; n != 3 {
			t.Errorf("%v: %d calls for a cheaper cost that passed, another and another key", limits, n)
		}
	}
}

// TestDenialCacheRequestKeys has the first of two layers deny a request, or the
// second, and asks for every other that is like it.
func TestDenialCacheRequestKeys(t *testing.T) {
	server := redistest.Start(t)
	for denies := range 2 {
		s := nodes(t, server.URL(), 1, redisstore.Options{Now: newVirtual().now})[0]
		full, room := bindIn(t, s, redisstore.Strict, "10/1h"), bindIn(t, s, redisstore.Strict, "1000/1h")
		ask := func(key, other string, weight, cost int64) bool {
			t.Helper()
			layers := []stint.Layer{{Bound: full, Key: key, Weight: weight}, {Bound: room, Key: other}}
			if denies == 1 {
				slices.Reverse(layers)
			}
			return decide(t, s, layers, cost).Allowed
		}
		if !ask("a", "b", 4, 2) || ask("a", "b", 4, 1) {
			t.Fatal("not full")
		}
		for _, like := range []struct {
			what, key, other string
			weight           int64
		}{{"another key", "c", "b", 4}, {"keys that run into each other", "", "ab", 4}, {"keys that swap", "b", "a", 4}, {"a smaller weight", "a", "b", 1}} {
			if !ask(like.key, like.other, like.weight, 1) {
				t.Errorf("%s: denied", like.what)
			}
		}
		before := calls(t, server)
		for range 10 {
			if ask("a", "b", 4, 1) || ask("a", "c", 4, 1) {
				t.Error("passed")
			}
		}
		if n := calls(t, server) - before; n != 1 { // for the second
			t.Errorf("%d calls for what was known", n)
		}
	}
}

// TestDenialCacheRequestDropped gives back on one of the keys of a request that is
// known to be denied, in every way there is here, and binds one of its limits
// anew.
func TestDenialCacheRequestDropped(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
	view := s.Mode(redisstore.Strict)
	layers := request(t, s, "k", []string{"100/1h", "99/1h"}, []string{"10/1h"})
	tight := layers[1:]
	passes := func() bool { return decide(t, s, layers, 1).Allowed }
	full := func() {
		t.Helper()
		for passes() {
		}
		if before := calls(t, server); passes() || calls(t, server) != before {
			t.Fatal("not full, or not known")
		}
	}
	full()
	if err := view.Reset(ctx, tight); err != nil || !passes() {
		t.Error("denied after a reset", err)
	}
	full()
	if _, err := view.Refund(ctx, tight, 1); err != nil || !passes() {
		t.Error("denied after a refund", err)
	}
	if err := view.Reset(ctx, tight); err != nil {
		t.Fatal(err)
	}
	_, id, err := view.Reserve(ctx, tight, 1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	full()
	if _, err := view.Settle(ctx, id, 0); err != nil || !passes() {
		t.Error("denied after a reservation was cancelled", err)
	}
	full()
	old := layers[1].Bound
	if layers[1].Bound, err = view.Bind("10/1h", stint.New(1000, time.Hour)); err != nil {
		t.Fatal(err)
	}
	for b, passes := range map[stint.Bound]bool{layers[1].Bound: true, old: false} {
		layers[1].Bound = b
		d := decide(t, s, layers, 1) // the units that are in use leave room under the new limit
		if of := layers[1].Answers[0]; d.Allowed != passes || of.Limit != b.Limits()[0].Count() {
			t.Errorf("%v answers as another limit: %+v", b.Limits(), of)
		}
	}
}

// A holder keeps the reply of one call back.
type holder struct {
	redisstore.Driver
	held atomic.Pointer[chan struct{}] // of the next call: who closes it lets the reply go
	here chan struct{}                 // closed when the reply is here
}

func (h *holder) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	held := h.held.Swap(nil)
	reply, err := h.Driver.EvalSHA(ctx, sha, keys, args)
	if held != nil {
		close(h.here)
		<-*held
	}
	return reply, err
}

// TestDenialCacheRequestOvertaken gives units back while a denial is on its way
// from the server: it is not kept.
func TestDenialCacheRequestOvertaken(t *testing.T) {
	clock := newVirtual()
	h := &holder{Driver: redisstore.DriverOf(client(t, redistest.Start(t).Addr)), here: make(chan struct{})}
	s := nodes(t, "", 1, redisstore.Options{Driver: h, Now: clock.now})[0]
	layers := request(t, s, "k", []string{"100/1h"}, []string{"10/1h"})
	for range 5 { // of two units each
		if !decide(t, s, layers, 1).Allowed {
			t.Fatal("denied at once")
		}
	}
	held, denied := make(chan struct{}), make(chan bool)
	h.held.Store(&held)
	go func() {
		d, err := s.Mode(redisstore.Strict).Decide(ctx, meter.OpTake, layers, 1)
		denied <- err == nil && !d.Allowed
	}()
	<-h.here
	if _, err := s.Mode(redisstore.Strict).Refund(ctx, layers[1:], 2); err != nil {
		t.Fatal(err)
	}
	close(held)
	if !<-denied {
		t.Error("not denied before the refund")
	}
	if !decide(t, s, layers, 1).Allowed {
		t.Error("denied after the refund")
	}
}

// TestDenialCacheRequestNever keeps nothing where a limit counts what it denies,
// nor what can never pass.
func TestDenialCacheRequestNever(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
	for _, c := range []struct {
		limits []string
		cost   int64
	}{{[]string{"5/1h", "100/1h fixed_window count_denied"}, 1}, {[]string{"5/1h", "100/1h"}, 6}, {[]string{"5/1h", "100/1h"}, 1 << 62}} {
		layers := request(t, s, fmt.Sprint("k", c), c.limits, []string{"1000/1h sliding_log"})
		decide(t, s, layers, 5)
		decide(t, s, layers, 1)
		before := calls(t, server)
		for range 10 {
			if d := decide(t, s, layers, c.cost); d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		if n := calls(t, server) - before; n != 10 {
			t.Errorf("%v for %d: %d of 10 were asked", c.limits, c.cost, n)
		}
	}
}

// TestDenialCacheModes floods a request that a lease would let pass and a strict
// limit denies: the strict one is asked once in Modes.DenialCache, and the lease
// keeps its units.
func TestDenialCacheModes(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
	hot, strict := bindIn(t, s, redisstore.Lease, "1000000/1s"), bindIn(t, s, redisstore.Strict, "5/1h", "100/s")
	layers := []stint.Layer{{Bound: hot, Key: "all"}, {Bound: strict, Key: "k"}}
	for range 1000 { // so that it is leased
		take(t, hot, "all", 1)
	}
	for decide(t, s, layers, 1).Allowed {
	}
	before := calls(t, server)
	for range 1000 {
		if d := decide(t, s, layers, 1); d.Allowed || d.Denied != 1<<1 {
			t.Fatalf("%+v", d)
		}
		clock.add(time.Millisecond)
	}
	if n := calls(t, server) - before; n > 50 {
		t.Errorf("%d calls for a second of 1000 denials", n)
	}
}

// full is a driver that denies all requests with two buckets.
type full struct {
	spy
	asked atomic.Int64
}

func (f *full) EvalSHA(context.Context, string, []string, []string) (any, error) {
	f.asked.Add(1)
	return []any{int64(-3_600_000_001), int64(-3_600_000_001)}, nil
}

// TestDenialCacheBound denies more requests than are kept. Later, those of others are
// kept as before.
func TestDenialCacheBound(t *testing.T) {
	clock, driver := newVirtual(), new(full)
	store, err := redisstore.New(redisstore.Options{Driver: driver, Now: clock.now, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limit := bindIn(t, store, redisstore.Strict, "1/1h", "1/30m")
	for i := range 40_000 {
		if take(t, limit, fmt.Sprint(i), 1).Allowed {
			t.Fatal("passed")
		}
	}
	if n := store.Denials(); n > 16_384 || n < 16_000 {
		t.Errorf("%d denials are kept", n)
	}
	clock.add(2 * time.Hour)
	before := driver.asked.Load()
	for range 3 {
		for i := range 1000 {
			take(t, limit, fmt.Sprint("later ", i), 1)
		}
	}
	if n := driver.asked.Load() - before; n > 1010 {
		t.Errorf("after the flood: %d calls for three denials of each of 1000 keys", n)
	}
}

// A meanwhile is a driver that does something, once, between the server's answer
// and its coming here.
type meanwhile struct {
	redisstore.Driver
	do func()
}

func (m *meanwhile) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	v, err := m.Driver.EvalSHA(ctx, sha, keys, args)
	if do := m.do; do != nil {
		m.do = nil
		do()
	}
	return v, err
}

// TestDenialCacheMeanwhile resets a key while its denial is on its way: that is
// not kept.
func TestDenialCacheMeanwhile(t *testing.T) {
	server := redistest.Start(t)
	for _, texts := range [][]string{{"5/1h"}, {"5/1h", "100/1h"}} {
		driver := &meanwhile{Driver: redisstore.NewDriver(client(t, server.Addr))}
		s, err := redisstore.New(redisstore.Options{Driver: driver, Timeout: 30 * time.Second, Now: newVirtual().now})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		limit := bindIn(t, s, redisstore.Strict, texts...)
		key := fmt.Sprint(texts)
		take(t, limit, key, 5)
		driver.do = func() {
			if err := s.Mode(redisstore.Strict).Reset(ctx, []stint.Layer{{Bound: limit, Key: key}}); err != nil {
				t.Error(err)
			}
		}
		if d := take(t, limit, key, 1); d.Allowed {
			t.Fatalf("%v: %+v", texts, d)
		}
		if d := take(t, limit, key, 1); !d.Allowed {
			t.Errorf("%v: denied after a reset: %+v", texts, d)
		}
	}
}
