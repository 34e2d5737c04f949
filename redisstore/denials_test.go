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
// each time, over the same random requests, among them such as give back in every way
// there is: verdicts and waits are the same, and denials that count are counted. A
// bucket's cached answer is the whole of the server's, but for two microseconds
// and a unit where its unit takes no whole microseconds.
func TestDenialCacheExact(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range []string{"5/1s", "7/1m burst 20", "10/1s leaky_queue", "5/1s fixed_window", "5/1s fixed_window count_denied"} {
		t.Run(text, func(t *testing.T) {
			clock, rnd := newVirtual(), rand.New(rand.NewPCG(7, 7))
			cached := open(t, server.URL(), redisstore.Options{Now: clock.now})
			asked := open(t, server.URL(), redisstore.Options{Now: clock.now, Modes: redisstore.Modes{DenialCache: -1}})
			a, b := bindIn(t, cached, redisstore.Strict, text), bindIn(t, asked, redisstore.Strict, text)
			denied := uint64(0)
			for i := range 3000 {
				cost := rnd.Int64N(4)
				if rnd.IntN(20) == 0 {
					cost = 100
				}
				clock.add(time.Duration(rnd.Int64N(int64(100 * time.Millisecond))))
				key := fmt.Sprint(rnd.IntN(2))
				back := rnd.IntN(60)
				for store, b := range map[*redisstore.Store]stint.Bound{cached: a, asked: b} {
					switch back {
					case 0:
						forget(t, store.Mode(redisstore.Strict), b, key)
					case 1, 2:
						giveBack(t, store.Mode(redisstore.Strict), []stint.Layer{{Bound: b, Key: key}}, 2)
					}
				}
				got, want := take(t, a, key, cost), take(t, b, key, cost)
				if !want.Allowed {
					denied++
				}
				if strings.HasPrefix(text, "5/1s fixed_window") || !want.Allowed {
					got.Remaining, want.Remaining = near(got.Remaining, want.Remaining, 1)
					got.ResetAfter, want.ResetAfter = near(got.ResetAfter, want.ResetAfter, time.Microsecond)
					got.RetryAfter, want.RetryAfter = near(got.RetryAfter, want.RetryAfter, stint.Wait(2*time.Microsecond))
				}
				if got != want {
					t.Fatalf("request %d for %d:\n%+v cached\n%+v asked", i, cost, got, want)
				}
			}
			if n := cached.Stats().DenialsCached; denied == 0 || a.Limits()[0].CountDenied() != (n == 0) || n > 0 && n < denied/10 {
				t.Errorf("of %d denials %d were answered here", denied, n)
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

// giveBack reserves, settles and refunds.
func giveBack(t testing.TB, s stint.Store, layers []stint.Layer, cost int64) {
	t.Helper()
	_, id, err := s.Reserve(ctx, layers, cost, time.Minute)
	if err == nil && id != "" {
		_, err = s.Settle(ctx, id, cost-1)
	}
	if err == nil {
		_, err = s.Refund(ctx, layers, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDenialCacheFlood floods an exhausted key, also of mode lease: the server is asked once
// in Modes.DenialCache, whatever is given back to other keys meanwhile, and what is cheaper
// is asked by itself.
func TestDenialCacheFlood(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range []string{"5/1h", "5/1h sliding_log", "5/1h sliding_counter", "5/1h sliding_buckets", "5/1h token_bucket_interval", "1000/1000h burst 1000"} {
		clock, mode := newVirtual(), redisstore.Strict
		if strings.Contains(text, "burst") {
			mode = redisstore.Lease
		}
		s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
		limit, other := bindIn(t, s, mode, text), bindIn(t, s, redisstore.Strict, "1000/1h")
		take(t, limit, "k", 3)
		for n := 0; mode == redisstore.Lease && n < 2000; n++ { // until nothing is in hand
			take(t, limit, "k", 1)
			clock.add(time.Millisecond)
		}
		before := calls(t, server)
		for i := range int64(1000) {
			if i%20 == 0 {
				giveBack(t, s.Mode(redisstore.Strict), []stint.Layer{{Bound: other, Key: fmt.Sprint("other ", i)}}, 2)
				before += 4 // calls
			}
			if d := take(t, limit, "k", 3); d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > stint.Wait(4*time.Hour) {
				t.Fatalf("%s: %+v", text, d)
			}
			clock.add(10 * time.Millisecond)
		}
		if n := calls(t, server) - before; n > 11 || n < 9 {
			t.Errorf("%s: %d calls for ten seconds of denials", text, n)
		}
		if mode == redisstore.Lease {
			if d := take(t, limit, "k", 901); d.Allowed || d.RetryAfter != stint.Never {
				t.Errorf("more than B − S: %+v", d)
			}
			continue
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

// TestDenialCacheBound denies more requests than are kept. Later, those of others are
// kept as before.
func TestDenialCacheBound(t *testing.T) {
	clock, asked := newVirtual(), atomic.Int64{}
	store := open(t, "", redisstore.Options{Now: clock.now, Driver: answers(func(context.Context, []string) (any, error) {
		asked.Add(1)
		return int64(-3_600_000_001), nil // denied by a bucket
	})})
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
	before := asked.Load()
	for range 3 {
		for i := range 1000 {
			take(t, limit, fmt.Sprint("later ", i), 1)
		}
	}
	if n := asked.Load() - before; n > 1010 {
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

// written returns what the server has counted of writes.
func written(t testing.TB, c redis.UniversalClient) string {
	t.Helper()
	info, err := do(t, c, "INFO", "persistence", "commandstats").Text()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, command := range []string{"set", "setrange", "append", "pexpire", "expire", "persist", "del", "unlink", "hset", "hdel"} {
		fmt.Fprintf(&b, "%s %d, ", command, redistest.Number(info, "cmdstat_"+command+":calls="))
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

// unhurried is limits of every kind and of either way of the script, which give
// nothing back while a test runs.
var unhurried = []string{
	"7/24h", "24/24h burst 3", "7/23h", "1/300000h", "7/24h leaky_queue", "1/60000h burst 3 leaky_queue",
	"5/24h burst 10 token_bucket_interval", "7/24h fixed_window", "7/24h fixed_window from first", "6 per day in Europe/Paris", "9 per month in UTC",
	"7/24h sliding_log", "400/24h sliding_log", "10/24h sliding_counter", "7/24h sliding_counter relaxed", "10/24h sliding_buckets", "7/24h sliding_buckets parts 7",
}

// TestDenialWritesNothing fills keys and then asks for more: what is denied writes nothing,
// on the server's clock and on one that goes on, by itself, beside limits that would let it
// pass, and in a call with others.
func TestDenialWritesNothing(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	t.Run("the server's clock", func(t *testing.T) { testDenied(t, server, c, nil, unhurried) })
	t.Run("a clock that goes on", func(t *testing.T) {
		testDenied(t, server, c, newVirtual(), append([]string{"1000/1h sliding_log"}, texts...))
	})
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

// testDenied asks by every verb that can deny, when all has been used, and when a part of it
// is there again.
func testDenied(t *testing.T, server *redistest.Server, c redis.UniversalClient, clock *virtual, of []string) {
	o, parts := redisstore.Options{NewKeys: -1}, 1
	if clock != nil {
		o.Now, parts = clock.now, 4
	}
	store := open(t, server.URL(), o)
	for _, text := range of {
		l := parse(t, text)
		if l.CountDenied() || l.Ban() > 0 {
			continue
		}
		limit, denied := bind(t, store, text), 0
		if l.Capacity() > 1000 {
			take(t, limit, text, l.Capacity())
		}
		for take(t, limit, text, 1).Allowed {
			if clock != nil {
				clock.add(l.Period() / time.Duration(2*l.Count()))
			}
		}
		for part := range parts {
			layers := []stint.Layer{{Bound: limit, Key: text, Weight: int64(1 + part%2)}}
			for _, beside := range []string{"1000000/24h", "8/23h", "400/24h sliding_log", "9 per day in Europe/Paris"} {
				layers = append(layers, stint.Layer{Bound: bind(t, store, beside), Key: fmt.Sprint(text, part)})
				take(t, layers[len(layers)-1].Bound, fmt.Sprint(text, part), 1)
			}
			last := append(slices.Clone(layers[1:]), layers[0])
			for _, cost := range []int64{1, l.Capacity()/2 + 1, math.MaxInt64} {
				for how, ask := range map[string]func() (stint.Decision, error){
					"take":                 func() (stint.Decision, error) { return limit.Decide(ctx, meter.OpTake, text, cost) },
					"peek":                 func() (stint.Decision, error) { return limit.Decide(ctx, meter.OpPeek, text, cost) },
					"take up to":           func() (stint.Decision, error) { return limit.Decide(ctx, meter.OpTakeUpTo, text, cost) },
					"take as the first":    func() (stint.Decision, error) { return store.Decide(ctx, meter.OpTake, layers, cost) },
					"take as the last":     func() (stint.Decision, error) { return store.Decide(ctx, meter.OpTake, last, cost) },
					"take beside a bucket": func() (stint.Decision, error) { return store.Decide(ctx, meter.OpTake, layers[:2], cost) },
					"reserve": func() (d stint.Decision, err error) {
						d, _, err = store.Reserve(ctx, layers[:1], cost, time.Hour)
						return
					},
				} {
					before := written(t, c)
					d, err := ask()
					if err != nil {
						t.Fatalf("%s, %s of %d: %v", text, how, cost, err)
					}
					if d.Allowed {
						continue
					}
					denied++
					if after := written(t, c); after != before {
						t.Errorf("%s, part %d, %s of %d is denied: from %s to %s", text, part, how, cost, before, after)
					}
				}
			}
			if clock != nil {
				clock.add(l.Period() / 4)
			}
		}
		if denied < 10 {
			t.Errorf("%s: only %d were denied", text, denied)
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
			for take(t, bind(t, alone, set...), key, 1).Allowed {
			}
		}
		calls = append(calls, func() {
			if d, err := limit.Decide(ctx, meter.OpTake, key, 1+int64(i%3)); err != nil || d.Allowed {
				t.Errorf("%v: %+v, %v", set, d, err)
			}
		})
	}
	before := written(t, c)
	wg := crowd(t, store, g, calls)
	close(g.opened)
	wg.Wait()
	if after := written(t, c); after != before {
		t.Errorf("%v: from %s to %s", sets, before, after)
	}
	if n := len(g.calls()); n != redisstore.MaxInFlight+1 {
		t.Errorf("%d calls, want one more than were on their way", n)
	}
}
