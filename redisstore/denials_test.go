package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// calls returns how many scripts the server has been asked to run.
func calls(t testing.TB, s *redistest.Server) int64 {
	t.Helper()
	return callsOf(t, s, "evalsha") + callsOf(t, s, "eval")
}

// TestDenialCacheExact compares a store that keeps denials with one that asks
// each time, over the same random requests: verdicts and waits are the same. A
// bucket's cached answer is the whole of the server's, but for two microseconds
// and a unit where its unit takes no whole microseconds.
func TestDenialCacheExact(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range []string{"5/1s", "7/1m burst 20", "10/1s leaky_queue", "5/1s fixed_window"} {
		t.Run(text, func(t *testing.T) {
			clock, rnd := newVirtual(), rand.New(rand.NewPCG(7, 7))
			cached := open(t, server.URL(), redisstore.Options{Now: clock.now})
			asked := open(t, server.URL(), redisstore.Options{Now: clock.now, Modes: redisstore.Modes{DenialCache: -1}})
			a, b := bindIn(t, cached, redisstore.Strict, text), bindIn(t, asked, redisstore.Strict, text)
			before, denied := calls(t, server), int64(0)
			const n = 3000
			for i := range n {
				cost := rnd.Int64N(4)
				if rnd.IntN(20) == 0 {
					cost = 100
				}
				clock.add(time.Duration(rnd.Int64N(int64(100 * time.Millisecond))))
				key := fmt.Sprint(rnd.IntN(2))
				got, want := take(t, a, key, cost), take(t, b, key, cost)
				if !want.Allowed {
					denied++
				}
				if text == "5/1s fixed_window" || !want.Allowed {
					got.Remaining, want.Remaining = near(got.Remaining, want.Remaining, 1)
					got.ResetAfter, want.ResetAfter = near(got.ResetAfter, want.ResetAfter, time.Microsecond)
					got.RetryAfter, want.RetryAfter = near(got.RetryAfter, want.RetryAfter, stint.Wait(2*time.Microsecond))
				}
				if got != want {
					t.Fatalf("request %d for %d:\n%+v cached\n%+v asked", i, cost, got, want)
				}
			}
			if spared := 2*n - (calls(t, server) - before); spared < denied/10 || denied == 0 {
				t.Errorf("of %d denials %d were answered here", denied, spared)
			}
		})
	}
}

// near makes two numbers the same if they are no further apart than that.
func near[T ~int64](a, b, most T) (T, T) {
	if a-b <= most && b-a <= most {
		return b, b
	}
	return a, b
}

// TestDenialCacheFlood floods an exhausted key: the server is asked once in
// Modes.DenialCache, and what is cheaper is asked by itself.
func TestDenialCacheFlood(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range []string{"5/1h", "5/1h sliding_log", "5/1h sliding_counter", "5/1h sliding_buckets", "5/1h token_bucket_interval"} {
		clock := newVirtual()
		s := open(t, server.URL(), redisstore.Options{Now: clock.now})
		limit := bindIn(t, s, redisstore.Strict, text)
		take(t, limit, "k", 3)
		before := calls(t, server)
		for range 1000 {
			if d := take(t, limit, "k", 3); d.Allowed {
				t.Fatalf("%s: %+v", text, d)
			}
			clock.add(10 * time.Millisecond)
		}
		if n := calls(t, server) - before; n > 11 || n < 9 {
			t.Errorf("%s: %d calls for ten seconds of denials", text, n)
		}
		if d, err := limit.Decide(ctx, meter.OpTakeUpTo, "other", 3); err != nil || d.Taken != 3 {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
		if d := take(t, limit, "k", 2); !d.Allowed {
			t.Errorf("%s: a cheaper cost: %+v", text, d)
		}
		if d := take(t, limit, "k", 1); d.Allowed {
			t.Errorf("%s: %+v", text, d)
		}
		s.Close()
	}
}

// TestDenialCacheOthers settles, refunds and resets other keys beside a denied
// flood: what is known of the denied ones stays known.
func TestDenialCacheOthers(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
	view := s.Mode(redisstore.Strict)
	one, other := bind(t, view, "1/1h"), bind(t, view, "1000/1h")
	take(t, one, "denied", 1)
	take(t, one, "denied", 1)
	before := calls(t, server)
	asked := int64(0)
	for i := range 50 {
		layers := []stint.Layer{{Bound: other, Key: fmt.Sprint("other ", i)}}
		_, id, err := view.Reserve(ctx, layers, 2, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := view.Settle(ctx, id, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := view.Refund(ctx, layers, 1); err != nil {
			t.Fatal(err)
		}
		asked += 4
		if d := take(t, one, "denied", 1); d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	if n := calls(t, server) - before - asked; n > 2 {
		t.Errorf("50 known denials cost %d calls while other keys were given something back", n)
	}
}

// TestDenialCacheDropped gives back in every way there is here, and denies what
// would have passed nowhere.
func TestDenialCacheDropped(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
	view := s.Mode(redisstore.Strict)
	limit := bindIn(t, s, redisstore.Strict, "5/1h")
	layers := []stint.Layer{{Bound: limit, Key: "k"}}
	full := func() {
		t.Helper()
		for take(t, limit, "k", 1).Allowed {
		}
		if take(t, limit, "k", 1).Allowed {
			t.Fatal("not full")
		}
	}
	full()
	if err := view.Reset(ctx, layers); err != nil || !take(t, limit, "k", 1).Allowed {
		t.Error("denied after a reset", err)
	}
	full()
	if _, err := view.Refund(ctx, layers, 1); err != nil || !take(t, limit, "k", 1).Allowed {
		t.Error("denied after a refund", err)
	}
	if err := view.Reset(ctx, layers); err != nil {
		t.Fatal(err)
	}
	_, id, err := view.Reserve(ctx, layers, 1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	full()
	if _, err := view.Settle(ctx, id, 0); err != nil || !take(t, limit, "k", 1).Allowed {
		t.Error("denied after a reservation was cancelled", err)
	}
	full()
	name := limit.Limits()[0].Name()
	more := made.Bound(t, view, name, stint.New(1000, time.Hour))
	clock.add(time.Microsecond)
	if d := take(t, more, "k", 1); !d.Allowed {
		// what was used is kept as time until full: one drain of the new limit
		clock.add(time.Duration(d.RetryAfter))
	}
	if !take(t, more, "k", 1).Allowed || take(t, limit, "k", 1).Limit != 5 {
		t.Error("one form answers as another")
	}
	denies := bindIn(t, s, redisstore.Strict, "5/1h fixed_window count_denied")
	take(t, denies, "k", 5)
	before := calls(t, server)
	for range 10 {
		take(t, denies, "k", 1)
	}
	if n := calls(t, server) - before; n != 10 {
		t.Errorf("%d of 10 denials that count were counted", n)
	}
}

// TestDenialCacheOtherNumbers has two processes hold a key to buckets of one identity and
// other numbers, as while a change is rolled out: what one knows to be denied by the other's
// numbers passes at no greater cost either, and no more is said to remain than does.
func TestDenialCacheOtherNumbers(t *testing.T) {
	server := redistest.Start(t)
	for _, texts := range [][2]string{{"500/1s burst 500", "300/1s burst 300"}, {"500/5s", "5/5s"}} {
		clock, rnd := newVirtual(), rand.New(rand.NewPCG(1, 1))
		history := envelopeOf(parse(t, texts[0]))
		var limits, asked []stint.Bound
		stores := nodes(t, server.URL(), 3, redisstore.Options{Now: clock.now})
		for i, text := range texts {
			limits, asked = append(limits, under(t, stores[i], redisstore.Strict, text)), append(asked, underOneName(t, stores[2], "l", text))
		}
		for range 5000 {
			clock.add(time.Duration(rnd.IntN(1000)) * time.Microsecond)
			i, cost := rnd.IntN(2), 1+rnd.Int64N(1+rnd.Int64N(300))
			d := take(t, limits[i], "k", cost)
			if d.Allowed {
				history.admit(t, clock.now(), cost)
			} else if d.Remaining >= cost || d.RetryAfter == 0 || d.Remaining > peek(t, asked[i], "k").Remaining {
				t.Fatalf("%d denied: %+v; the server: %+v", cost, d, peek(t, asked[i], "k"))
			}
		}
		if history.highest < history.burst-10 {
			t.Errorf("%d of %d: the worst case was not reached", history.highest, history.burst)
		}
	}
}

// TestDenialCacheLongKeys denies keys of a megabyte: what is kept of them is short, and
// each has its own denial.
func TestDenialCacheLongKeys(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{Modes: redisstore.Modes{DenialCache: time.Hour}})
	limit := bindIn(t, store, redisstore.Strict, "1/1h")
	long := strings.Repeat("x", 1<<20)
	for i := range 8 {
		key := fmt.Sprint(long, i)
		take(t, limit, key, 1)
		other := stint.Layer{Bound: limit, Key: fmt.Sprint("short ", i)}
		for range 2 {
			if d := take(t, limit, key, 1); d.Allowed {
				t.Errorf("key %d passes twice", i)
			}
			if d, err := store.Mode(redisstore.Strict).Decide(ctx, meter.OpTake, []stint.Layer{other, {Bound: limit, Key: key}}, 1); err != nil || d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		}
	}
	if n := store.Stats().DenialsCached; n < 8 {
		t.Errorf("%d denials were known", n)
	}
	if _, n := redisstore.DeniedKeys(limit); n > 1024 {
		t.Errorf("denials are kept under names of %d bytes", n)
	}
}

// full is a driver that denies all requests with a bucket.
type full struct {
	spy
	asked atomic.Int64
}

func (f *full) EvalSHA(context.Context, string, []string, []string) (any, error) {
	f.asked.Add(1)
	return int64(-3_600_000_001), nil
}

// TestDenialCacheBound denies more requests than are kept. Later, those of others are
// kept as before.
func TestDenialCacheBound(t *testing.T) {
	clock, driver := newVirtual(), new(full)
	store := open(t, "", redisstore.Options{Driver: driver, Now: clock.now})
	limit := bindIn(t, store, redisstore.Strict, "1/1h")
	for i := range 40_000 {
		if take(t, limit, fmt.Sprint(i), 1).Allowed {
			t.Fatal("passed")
		}
	}
	if n, _ := redisstore.DeniedKeys(limit); n > 16_384 || n < 16_000 {
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

// TestDenialCacheMeanwhile resets a key while its denial is on its way: that is
// not kept.
func TestDenialCacheMeanwhile(t *testing.T) {
	var once func() // between the server's answer and its coming here
	driver := &front{Driver: redisstore.NewDriver(client(t, redistest.Start(t).Addr)), eval: func(_ context.Context, _, args []string, call func([]string) (any, error)) (any, error) {
		v, err := call(args)
		if do := once; do != nil {
			once = nil
			do()
		}
		return v, err
	}}
	s := open(t, "", redisstore.Options{Driver: driver, Now: newVirtual().now})
	limit := bindIn(t, s, redisstore.Strict, "5/1h")
	take(t, limit, "k", 5)
	once = func() { forget(t, s.Mode(redisstore.Strict), limit, "k") }
	if d := take(t, limit, "k", 1); d.Allowed {
		t.Fatalf("%+v", d)
	}
	if d := take(t, limit, "k", 1); !d.Allowed {
		t.Errorf("denied after a reset: %+v", d)
	}
}

// held returns all that the server holds, when it expires, and what the server
// has counted of writes.
func held(t testing.TB, c redis.UniversalClient) string {
	t.Helper()
	var b strings.Builder
	all := keys(t, c)
	slices.Sort(all)
	for _, key := range all {
		dump, err := do(t, c, "DUMP", key).Text()
		if err != nil {
			t.Fatal(err)
		}
		expires, err := do(t, c, "PEXPIRETIME", key).Int64()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s = %q until %d\n", key, dump, expires)
	}
	info, err := do(t, c, "INFO", "everything").Text()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"set", "setrange", "append", "pexpire", "expire", "persist", "del", "unlink", "hset", "hdel"} {
		fmt.Fprintf(&b, "%s %d\n", command, redistest.Number(info, "cmdstat_"+command+":calls="))
	}
	fmt.Fprintf(&b, "changes %d", redistest.Number(info, changes))
	return b.String()
}

const changes = "rdb_changes_since_last_save:"

// dirty returns how many writes the server has counted.
func dirty(t testing.TB, s *redistest.Server) int64 {
	t.Helper()
	return s.Stat(t, "persistence", changes)
}

// unwritten calls what should write nothing.
func unwritten(t testing.TB, c redis.UniversalClient, what string, call func()) {
	t.Helper()
	before := held(t, c)
	call()
	if after := held(t, c); after != before {
		t.Errorf("%s: the server held\n%s\nand holds\n%s", what, before, after)
	}
}

// unhurried is limits of every kind and of either way of the script, which give
// nothing back while a test runs.
var unhurried = []string{
	"7/24h", "24/24h burst 3", "7/23h", "1/300000h", "7/24h leaky_queue", "1/60000h burst 3 leaky_queue",
	"5/24h burst 10 token_bucket_interval", "7/24h fixed_window", "7/24h fixed_window from first", "6 per day in Europe/Paris", "9 per month in UTC",
	"7/24h sliding_log", "400/24h sliding_log", "10/24h sliding_counter", "7/24h sliding_counter relaxed", "10/24h sliding_buckets", "7/24h sliding_buckets parts 7",
}

// exhaust takes one by one what a key has, and returns how much that was.
func exhaust(t testing.TB, limit stint.Bound, key string) (n int64) {
	t.Helper()
	for take(t, limit, key, 1).Allowed {
		n++
	}
	return n
}

// TestDenialWritesNothing compares what the server holds and has counted of
// writes before and after denials.
func TestDenialWritesNothing(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	t.Run("each kind", func(t *testing.T) { testDeniedKinds(t, server, c, redisstore.Options{}, unhurried) })
	fixed := int64(1_750_000_123_456_789_000)
	t.Run("at one instant", func(t *testing.T) {
		testDeniedKinds(t, server, c, redisstore.Options{Now: func() int64 { return fixed }}, texts)
	})
	t.Run("layers", func(t *testing.T) { testDeniedLayers(t, server, c) })
	t.Run("long logs", func(t *testing.T) { testDeniedLogs(t, server, c) })
	t.Run("together, short", func(t *testing.T) {
		testDeniedInBatch(t, server, c, [][]string{{"7/24h"}, {"9/24h burst 3", "100/24h"}, {"100/24h", "6/24h leaky_queue"}, {"7/24h fixed_window"}, {"100/24h", "10/24h sliding_counter"}})
	})
	t.Run("together, long", func(t *testing.T) {
		testDeniedInBatch(t, server, c, [][]string{
			{"7/24h token_bucket_interval"}, {"405/24h sliding_log"}, {"6/24h sliding_log"}, {"100/24h", "10/24h sliding_counter relaxed"},
			{"9/24h sliding_buckets", "405/24h sliding_log", "100 per day in Europe/Paris"},
		})
	})
	shows(t, "what a denial leaves behind", "nothing, on however many nodes")
}

// testDeniedKinds denies what has no room left, by every verb that can.
func testDeniedKinds(t *testing.T, server *redistest.Server, c redis.UniversalClient, o redisstore.Options, of []string) {
	store := open(t, server.URL(), o)
	for _, text := range of {
		l := parse(t, text)
		if l.CountDenied() {
			continue
		}
		do(t, c, "FLUSHALL")
		limit := bind(t, store, text)
		layers := []stint.Layer{{Bound: limit, Key: "a"}}
		if l.Capacity() > 1000 {
			take(t, limit, "a", l.Capacity())
		}
		exhaust(t, limit, "a")
		unwritten(t, c, text, func() {
			for _, cost := range []int64{1, 2, l.Capacity(), max(l.Capacity(), l.Capacity()+1), math.MaxInt64} {
				if d := take(t, limit, "a", cost); d.Allowed {
					t.Errorf("%s: %d: %+v", text, cost, d)
				}
			}
			if d := take(t, limit, "a", 0); !d.Allowed {
				t.Errorf("%s: nothing: %+v", text, d)
			}
			for _, op := range []meter.Op{meter.OpPeek, meter.OpTakeUpTo} {
				if d, err := limit.Decide(ctx, op, "a", 1); err != nil || d.Allowed {
					t.Errorf("%s: %v: %+v, %v", text, op, d, err)
				}
			}
			if d, _, err := store.Reserve(ctx, layers, 1, time.Hour); err != nil || d.Allowed {
				t.Errorf("%s: reserve: %+v, %v", text, d, err)
			}
		})
	}
}

// testDeniedLayers has one layer deny where the others would not, whichever it
// is.
func testDeniedLayers(t *testing.T, server *redistest.Server, c redis.UniversalClient) {
	store := open(t, server.URL(), redisstore.Options{})
	for _, set := range [][]string{
		{"7/24h", "9/24h leaky_queue", "8/23h"},
		{"7/24h", "400/24h sliding_log", "10/24h sliding_counter", "6 per day in Europe/Paris"},
		{"7/24h sliding_log", "10/24h sliding_buckets", "5/24h burst 10 token_bucket_interval", "7/24h fixed_window"},
	} {
		for denies := range set {
			for _, weight := range []int64{1, 2} {
				do(t, c, "FLUSHALL")
				var layers []stint.Layer
				for i, text := range set {
					layers = append(layers, stint.Layer{Bound: bind(t, store, text), Key: fmt.Sprint("key", i%2), Weight: weight})
				}
				if d, err := store.Decide(ctx, meter.OpTake, layers, 1); err != nil || !d.Allowed {
					t.Fatalf("%v: %+v, %v", set, d, err)
				}
				exhaust(t, layers[denies].Bound, layers[denies].Key)
				unwritten(t, c, fmt.Sprint(set, denies, weight), func() {
					for _, cost := range []int64{1, 2, 1000} {
						d, err := store.Decide(ctx, meter.OpTake, layers, cost)
						if err != nil || d.Allowed || !d.Denied.Has(denies) || cost == 1 && d.Denied != 1<<denies {
							t.Errorf("%v: %+v, %v", set, d, err)
						}
					}
				})
			}
		}
	}
}

// testDeniedLogs denies where a long log is read in part or whole, also when some
// of it has come to an end.
func testDeniedLogs(t *testing.T, server *redistest.Server, c redis.UniversalClient) {
	clock := newVirtual()
	o := redisstore.Options{Prefix: "long", Now: clock.now}
	store := open(t, server.URL(), o)
	const text = "1000/1h sliding_log"
	limit, other := bind(t, store, text), bind(t, store, "2000/1h")
	for _, n := range []int{40, 1000} { // of the first form, and of the second
		do(t, c, "FLUSHALL")
		for range n {
			clock.add(time.Hour / 2000)
			take(t, limit, "a", int64(1000/n))
		}
		value, err := do(t, c, "GET", redisstore.StateOf(o, "a", limit)).Text()
		if err != nil || strings.Contains(value[:24], ":*") != (n == 1000) {
			t.Fatalf("a log of %d is of the other form: %q, %v", n, value, err)
		}
		for part := range 4 { // of which the first 0, 1, 2, 3 quarters have ended
			unwritten(t, c, fmt.Sprintf("%d entries, %d quarters ended", n, part), func() {
				for _, cost := range []int64{1, 300, 600, 900, 1000, 1001} {
					if cost <= int64(part)*1000/4+10 {
						continue // which passes, or nearly
					}
					if d := take(t, limit, "a", cost); d.Allowed {
						t.Errorf("%d, %d: %d: %+v", n, part, cost, d)
					}
					if d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: limit, Key: "a"}, {Bound: other, Key: "b"}}, cost); err != nil || d.Denied != 1 {
						t.Errorf("%d, %d: %d: %+v, %v", n, part, cost, d, err)
					}
				}
			})
			if part == 0 {
				clock.add(time.Hour - time.Hour/2000*time.Duration(n))
			}
			clock.add(time.Hour / 2000 * time.Duration(n) / 4)
		}
	}
}

// testDeniedInBatch denies requests on a key of each set, most of them in
// batches.
func testDeniedInBatch(t *testing.T, server *redistest.Server, c redis.UniversalClient, sets [][]string) {
	do(t, c, "FLUSHALL")
	o := redisstore.Options{Prefix: "together"}
	alone := open(t, server.URL(), o)
	store, g := gated(t, server, o)
	var calls []func()
	for i := range 10 * len(sets) {
		set := sets[i%len(sets)]
		limit, key := bind(t, store, set...), set[0]
		if i < len(sets) {
			exhaust(t, bind(t, alone, set...), key)
		}
		calls = append(calls, func() {
			if d, err := limit.Decide(ctx, meter.OpTake, key, 1+int64(i%3)); err != nil || d.Allowed {
				t.Errorf("%v: %+v, %v", set, d, err)
			}
		})
	}
	unwritten(t, c, fmt.Sprint(sets), func() {
		wg := crowd(t, store, g, calls)
		close(g.opened)
		wg.Wait()
	})
	if n := len(g.calls()); n != redisstore.MaxInFlight+1 {
		t.Errorf("%d calls, want one more than were on their way", n)
	}
}
