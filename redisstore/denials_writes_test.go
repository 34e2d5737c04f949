package redisstore_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

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
