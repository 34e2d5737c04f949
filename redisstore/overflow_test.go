package redisstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

func exists(t testing.TB, c redis.UniversalClient, key string) bool {
	t.Helper()
	n, err := do(t, c, "EXISTS", key).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func size(t testing.TB, c redis.UniversalClient) int64 { return int64(len(keys(t, c))) }

// TestOverflowDifferential does random things of all verbs, kinds, layers and
// weights to a store whose budget is spent: a key that is there decides as in
// memory, and one that is not as all of its cell would if they were one key.
func TestOverflowDifferential(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	steps := 3000
	if race.On {
		steps = 300
	}
	if testing.Short() {
		steps = 300
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(t, server.URL(), seed)
			store := p.redis.(*redisstore.Store)
			for _, l := range p.limits { // these keys are established, as far as the limit lets anything pass
				for i := range 2 {
					key := fmt.Sprint("key ", i)
					p.same(key, "take")(l.redis.Decide(ctx, meter.OpTake, key, 1))(l.memory.Decide(ctx, meter.OpTake, key, 1))
				}
			}
			store.Flood()
			p.flooded = c
			before := store.Stats().Overflowed
			for range steps {
				p.step()
			}
			if store.Stats().Overflowed == before {
				t.Error("nothing was decided in a cell: that was no trial")
			}
		})
	}
}

// TestOverflow floods a server with new keys, from eight goroutines: no more
// come into being than the budget and the cells allow, newcomers together get no
// more than their limits and those of all cells, and a key that another store
// has made stays as exact as it was. When there is a budget again, so is there
// a place for who comes.
func TestOverflow(t *testing.T) {
	need.Time(t)
	server := redistest.Start(t)
	c := client(t, server.Addr)
	const budget, callers, each = 100, 8, 2
	newcomers := int64(800)
	if race.On {
		newcomers = 180
	}
	for _, text := range []string{
		"2/1000h", "2/7h", "2/1000h leaky_queue burst 1", "2/1000h token_bucket_interval", "2/1000h fixed_window", "2 per month in Europe/Paris",
		"2/1000h sliding_counter", "2/1000h sliding_buckets", "2/1000h sliding_log",
	} {
		t.Run(text, func(t *testing.T) {
			do(t, c, "FLUSHALL")
			var now atomic.Int64
			now.Store(1_900_000_000e9)
			o := redisstore.Options{Prefix: fmt.Sprint("test", prefixes.Add(1)), Now: now.Load, NewKeys: budget}
			store := open(t, server.URL(), o)
			o.NewKeys = -1
			other := open(t, server.URL(), o)
			for i := range 20 { // one unit is left of each
				take(t, bind(t, other, text), fmt.Sprint("established ", i), 1)
			}
			limit, base := bind(t, store, text), size(t, c)
			var passed atomic.Int64
			var wg sync.WaitGroup
			for g := range callers {
				wg.Go(func() {
					for i := range newcomers {
						for range each + 1 {
							passed.Add(take(t, limit, fmt.Sprint("newcomer ", g, " ", i), 1).Taken)
						}
					}
				})
			}
			wg.Wait()
			// A call that is on its way when the budget ends may still make a key.
			if made := size(t, c) - base; made > budget+callers+redisstore.Cells || made < budget+redisstore.Cells/2 {
				t.Errorf("%d keys came into being, of a budget of %d and %d cells", made, budget, redisstore.Cells)
			}
			// A newcomer may have its own limit besides what it had of its cell.
			if most := int64(each * (budget + callers + redisstore.Cells)); passed.Load() > most || passed.Load() < most/2 {
				t.Errorf("%d units passed, want at most %d of %d that were asked for, and not much less", passed.Load(), most, callers*newcomers*(each+1))
			}
			if n := store.Stats().Overflowed; n == 0 || n > uint64(callers*newcomers*(each+1)) {
				t.Errorf("%d decisions in cells", n)
			}
			for i := range 20 {
				for k, want := range []int64{1, 0, 0} {
					if d := take(t, limit, fmt.Sprint("established ", i), 1); d.Taken != want {
						t.Errorf("an established key's take %d during the flood: %+v", k, d)
					}
				}
			}
			base = size(t, c)
			now.Add(int64(time.Second / 2)) // half the budget is there again, but for what was too much
			owners := 0
			for i := range budget {
				key := fmt.Sprint("later ", i)
				d := take(t, limit, key, 1)
				if exists(t, c, redisstore.StateOf(o, key, limit)) {
					owners++
					if d.Taken != 1 || d.Remaining != d.Limit-1 {
						t.Errorf("the first take of a key of its own: %+v", d)
					}
				}
			}
			if owners > budget/2 || owners < budget/2-callers {
				t.Errorf("%d newcomers have a key of their own, of half a budget of %d", owners, budget)
			}
			if made := size(t, c) - base; made > budget/2+redisstore.Cells {
				t.Errorf("%d keys more", made)
			}
		})
	}
	shows(t, "keys that newcomers bring into being", "what fits 85 % of the memory, or `NewKeys` a second and process")
}

// TestOverflowSameTag has two keys of one limit and one tag in a request: each is
// charged, on a cell of its own.
func TestOverflowSameTag(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{Tag: func(string) string { return "tag" }})
	store.OneCell()
	store.Flood()
	for _, text := range []string{"20/1000h", "20/1000h fixed_window"} {
		limit := bind(t, store, text)
		layers := make([]stint.Layer, 3)
		for i := range layers {
			layers[i] = stint.Layer{Bound: limit, Key: fmt.Sprint("key ", i), Weight: int64(i + 1), Answers: make([]stint.Decision, 1)}
		}
		for takes := int64(1); takes <= 3; takes++ {
			if _, err := store.Decide(ctx, meter.OpTake, layers, 1); err != nil {
				t.Fatal(err)
			}
			for i, l := range layers {
				if got, want := l.Answers[0].Remaining, 20-takes*l.Weight; got != want {
					t.Errorf("%s: after %d takes %d remain of layer %d, want %d", text, takes, got, i, want)
				}
			}
		}
	}
}

// TestOverflowBelongs resets a newcomer, refunds to it and posts a debt of it:
// that is between it and its own key. What was reserved in a cell goes back
// there, from whichever store settles, but not once the key has been reset.
func TestOverflowBelongs(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	o := redisstore.Options{Prefix: "belongs", Tag: func(string) string { return "tag" }}
	store, other := open(t, server.URL(), o), open(t, server.URL(), o)
	store.OneCell()
	other.OneCell()
	store.Flood()
	for _, text := range []string{"5/1000h", "5/1000h sliding_log"} {
		do(t, c, "FLUSHALL")
		limit := bind(t, store, text)
		bind(t, other, text)
		layers := func(key string) []stint.Layer { return []stint.Layer{{Bound: limit, Key: key}} }
		left := func(want int64) {
			t.Helper()
			if d, err := limit.Decide(ctx, meter.OpPeek, "peeks", 1); err != nil || d.Remaining != want {
				t.Errorf("%s: %d remain in the cell, want %d: %v", text, d.Remaining, want, err)
			}
		}
		reserve := func(key string, cost int64) stint.ReservationID {
			t.Helper()
			d, id, err := store.Reserve(ctx, layers(key), cost, time.Hour)
			if err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", text, d, err)
			}
			return id
		}
		take(t, limit, "a", 1)
		left(4)
		if _, err := store.Refund(ctx, layers("a"), 1); err != nil {
			t.Fatal(err)
		}
		if err := store.Reset(ctx, layers("a")); err != nil {
			t.Fatal(err)
		}
		left(4)
		id := reserve("b", 3)
		left(1)
		if d, err := other.Settle(ctx, id, 1); err != nil || d.Remaining != 3 {
			t.Errorf("%s: settled at 1 of 3: %+v, %v", text, d, err)
		}
		left(3)
		id = reserve("b", 1)
		if err := store.Reset(ctx, layers("b")); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Settle(ctx, id, 0); err != stint.ErrReservation {
			t.Errorf("%s: settled after a reset: %v", text, err)
		}
		left(2)
		id = reserve("debtor", 0)
		if _, err := other.Settle(ctx, id, 4); err != nil {
			t.Fatal(err)
		}
		left(2)
		if d, err := limit.Decide(ctx, meter.OpPeek, "debtor", 1); err != nil || d.Remaining != 1 {
			t.Errorf("%s: after a debt of 4: %+v, %v", text, d, err)
		}
	}
}

// TestOverflowSpends says what costs budget: keys that are there a second
// later, and only when they come into being.
func TestOverflowSpends(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range []struct {
		name, text string
		op         meter.Op
		cost       int64
		keys       int // of how many the newcomer after them still has a key of its own, of a budget of 50
		shared     bool
	}{
		{"brief", "1000000/s", meter.OpTake, 1, 200, false},
		{"brief window", "1000000/s fixed_window", meter.OpTake, 1, 200, false},
		{"peeks", "5/1000h", meter.OpPeek, 1, 200, false},
		{"denials", "5/1000h", meter.OpTake, 6, 200, false},
		{"denied log", "5/1000h sliding_log", meter.OpTake, 6, 200, false},
		{"nothing", "5/1000h", meter.OpTake, 0, 200, false},
		{"counted denials", "5/1000h fixed_window count_denied", meter.OpTake, 6, 50, true},
		{"takes", "5/1000h", meter.OpTake, 1, 50, true},
		{"up to", "5/1000h", meter.OpTakeUpTo, 9, 50, true},
		{"fewer", "5/1000h", meter.OpTake, 5, 49, false},
		{"windows", "5/1000h fixed_window", meter.OpTake, 5, 50, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := open(t, server.URL(), redisstore.Options{NewKeys: 50, Now: func() int64 { return 1_900_000_000e9 }})
			limit := bind(t, store, c.text)
			for i := range c.keys {
				for range 2 { // the second finds the key
					if _, err := limit.Decide(ctx, c.op, fmt.Sprint("key ", i), c.cost); err != nil {
						t.Fatal(err)
					}
				}
			}
			take(t, limit, "one more", 1)
			if n := store.Stats().Overflowed; n > 0 != c.shared {
				t.Errorf("%d decisions in cells after %d keys", n, c.keys)
			}
		})
	}
	t.Run("layers", func(t *testing.T) {
		store := open(t, server.URL(), redisstore.Options{NewKeys: 50, Now: func() int64 { return 1_900_000_000e9 }})
		each, all := bind(t, store, "5/1000h"), bind(t, store, "1000/1000h")
		for i := range 49 {
			layers := []stint.Layer{{Bound: all, Key: "all"}, {Bound: each, Key: fmt.Sprint("key ", i)}}
			if _, err := store.Decide(ctx, meter.OpTake, layers, 1); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []uint64{0, 1, 1} { // 50 have been made; of the last, "all" is there
			layers := []stint.Layer{{Bound: all, Key: "all"}}
			if i == 1 {
				layers = append(layers, stint.Layer{Bound: each, Key: "one more"})
			}
			if _, err := store.Decide(ctx, meter.OpTake, layers, 1); err != nil || store.Stats().Overflowed != want {
				t.Errorf("request %d: %d decisions in cells, want %d: %v", i, store.Stats().Overflowed, want, err)
			}
		}
	})
}

// newcomers lets clients of those numbers come for the first time, as fast as they
// can, and returns how many were denied and how many not decided.
func newcomers(t *testing.T, first, last int, limits ...stint.Bound) (denied, failed int64) {
	t.Helper()
	var next, no, errs atomic.Int64
	next.Store(int64(first) - 1)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for {
				k := next.Add(1)
				if k > int64(last) {
					return
				}
				d, err := limits[i%len(limits)].Decide(ctx, meter.OpTake, fmt.Sprint("client ", k), 1)
				switch {
				case err != nil:
					if errs.Add(1) == 1 {
						t.Logf("client %d: %v", k, err)
					}
				case !d.Allowed:
					no.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return no.Load(), errs.Load()
}

// TestColdStart has a server that has lost everything meet all clients of a busy
// site anew, at many times the rate that a budget of keys a second would let in:
// each has its own limit.
func TestColdStart(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{})
	if denied, failed := newcomers(t, 1, 60_000, bind(t, store, "2 per minute burst 1")); denied+failed > 0 {
		t.Errorf("of 60,000 clients that came for the first time %d were denied and %d not decided", denied, failed)
	}
	if st := store.Stats(); st.Overflowed != 0 {
		t.Errorf("%+v", st)
	}
}

// TestFloodByRoom floods a server that has little room, by two stores that say
// nothing of how many keys there may be: it is not filled, however long the flood
// lasts, goes on deciding, and those that are there have their own limit to the end.
func TestFloodByRoom(t *testing.T) {
	need.Time(t)
	room, wave := 16<<20, 30_000
	if race.On {
		room, wave = 8<<20, 10_000
	}
	server := redistest.Start(t, "--maxmemory", fmt.Sprint(room), "--maxmemory-policy", "noeviction")
	c := client(t, server.Addr)
	o := redisstore.Options{Prefix: "room"}
	one, other := open(t, server.URL(), o), open(t, server.URL(), o)
	limits := []stint.Bound{bind(t, one, "2/24h"), bind(t, other, "2/24h")}
	take(t, limits[0], "known", 1)
	denied, failed := newcomers(t, 1, 4*wave, limits...)
	for i := range 3 {
		one.RenewNewKeys()
		other.RenewNewKeys()
		more, undecided := newcomers(t, (4+i)*wave+1, (5+i)*wave, limits...)
		denied, failed = denied+more, failed+undecided
	}
	used := server.Stat(t, "memory", "used_memory:")
	t.Logf("%d denied, %d failed, %d bytes used", denied, failed, used)
	if failed > 0 || used > int64(room/100*95) { // connections count in it, too
		t.Errorf("%d requests were not decided, %d bytes are used of %d", failed, used, room)
	}
	n, err := do(t, c, "DBSIZE").Int64()
	if err != nil || n < int64(wave*2/3) {
		t.Errorf("%d keys, %v: there was room for more", n, err)
	}
	if st := one.Stats(); st.Overflowed == 0 || st.OverflowDenied == 0 || st.OverflowDenied > st.Overflowed {
		t.Errorf("%+v", st)
	}
	if d := take(t, limits[1], "known", 1); !d.Allowed {
		t.Errorf("a key that was there before: %+v", d)
	}
	if d := take(t, limits[0], "known", 1); d.Allowed {
		t.Errorf("more than its limit: %+v", d)
	}
	shows(t, "keys that newcomers bring into being", "what fits 85 % of the memory, or `NewKeys` a second and process")
}

// TestRoomReturns floods a server until newcomers share overflow keys, then makes
// room again: newcomers have keys of their own again, though meanwhile no key has
// come into being.
func TestRoomReturns(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Timeout: patience})
	b := bind(t, store, "2/24h")
	for n := 0; store.Stats().Overflowed == 0; n += 10_000 {
		if n > 500_000 {
			t.Fatal("half a million keys, and none shares one")
		}
		for i := range 10_000 {
			take(t, b, fmt.Sprint("flood ", n+i), 1)
		}
	}
	do(t, c, "FLUSHALL")
	for i, end := 0, time.Now().Add(30*time.Second); ; i++ {
		before := store.Stats().Overflowed
		take(t, b, fmt.Sprint("newcomer ", i), 1)
		if store.Stats().Overflowed == before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %d newcomers on an empty server they still share overflow keys", i)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
