package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// list parses limits that are bound together, each perhaps with a name.
func list(t testing.TB, text string) (all []stint.Limit) {
	t.Helper()
	for _, one := range strings.Split(text, ", ") {
		name := ""
		if before, after, ok := strings.Cut(one, " as "); ok {
			one, name = before, after
		}
		l, err := stint.Parse(one)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l.WithName(name))
	}
	return all
}

// bound binds a list under the name of all of them.
func bound(t testing.TB, s stint.Store, text string) stint.Bound {
	t.Helper()
	b, err := s.Bind("api", list(t, text)...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestListsChange has limits without names take the place of each other: a key that
// has exhausted the first list finds nothing left under the next, nor when it comes
// back, in Redis as in memory.
func TestListsChange(t *testing.T) {
	server := redistest.Start(t)
	for i, c := range []struct {
		lists []string
		want  []int // that pass under each in turn
	}{
		{[]string{"10/1m", "10/1h", "10/1m"}, []int{10, 0, 0}},
		{[]string{"10/1m", "10/1m sliding_log", "10/1m"}, []int{10, 0, 0}},
		{[]string{"10/1m", "100/1h fixed_window", "10/1m"}, []int{10, 90, 0}},
		{[]string{"10/1m", "10/1h leaky_queue burst 9", "20/1h sliding_counter"}, []int{10, 0, 10}},
		{[]string{"10/1m, 20/1h", "30/1d", "10/1m, 20/1h"}, []int{10, 20, 0}},
		{[]string{"30/1d", "10/1m, 40/1h", "30/1d"}, []int{30, 0, 0}},
		{[]string{"10/1m, 20/1h", "10/1m, 15/1d", "10/1m, 20/1h"}, []int{10, 0, 0}},
		{[]string{"10/1m as short", "10/1h", "10/1m sliding_log as short"}, []int{10, 0, 0}},
		{[]string{"10/1m", "20/1h", "30/1d", "40/2d", "50/3d", "10/1m"}, []int{10, 10, 10, 10, 10, 0}},
		{[]string{"10/1m sliding_buckets", "10/1h sliding_buckets", "10/1m sliding_buckets"}, []int{10, 0, 0}},
		{[]string{"10/1m token_bucket_interval", "12/1h token_bucket_interval", "10/1m token_bucket_interval"}, []int{10, 2, 0}},
		{[]string{"10 per day in UTC", "10/1m", "10 per day in UTC"}, []int{10, 0, 0}},
		{[]string{"10/1m count_denied fixed_window", "12/1h fixed_window", "12/1h fixed_window"}, []int{10, 1, 0}},
	} {
		t.Run(strings.Join(c.lists, "; "), func(t *testing.T) {
			now := int64(1_790_000_000_000_000_000)
			clock := func() int64 { return now }
			for _, s := range []stint.Store{
				open(t, server.URL(), redisstore.Options{Prefix: fmt.Sprint("lists", i), Now: clock}),
				memstore.New(memstore.Options{Now: clock}),
			} {
				var all []stint.Bound
				for k, text := range c.lists {
					b := bound(t, s, text)
					all = append(all, b) // in memory somebody holds it
					n := 0
					for take(t, b, "key", 1).Allowed {
						n++
					}
					if n != c.want[k] {
						t.Errorf("%T: %d passed under %q, the %d. list; want %d", s, n, text, k+1, c.want[k])
					}
				}
				_ = all
			}
		})
	}
}

// TestListsOverlap takes a limit out of a list and puts it back: the one that stays
// goes on, and the other does not count while it is out.
func TestListsOverlap(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	s := open(t, server.URL(), redisstore.Options{Prefix: "overlap", Now: func() int64 { return now }})
	both := bound(t, s, "10/1s, 60/1h")
	for range 3 {
		if n := passes(t, both, 12); n != 10 {
			t.Errorf("%d pass in a second under both", n)
		}
		now += int64(time.Second)
	}
	if n := passes(t, bound(t, s, "10/1s"), 12); n != 10 {
		t.Errorf("%d pass under the one that stays", n)
	}
	now += int64(time.Second)
	if d := take(t, both, "key", 10); !d.Allowed {
		t.Errorf("under both again: %+v", d)
	}
	if d := take(t, bound(t, s, "60/1h"), "key", 21); d.Allowed || d.Remaining != 20 {
		t.Errorf("60/1h has %d left, 20 without those that passed while it was out", d.Remaining)
	}
}

// TestListsTogether asks two limits of one name in one request, both of which meet the
// key by it: each counts that request, but not what the other lets pass alone.
func TestListsTogether(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	s := open(t, server.URL(), redisstore.Options{Prefix: "together", Now: func() int64 { return now }})
	minute, hour := bound(t, s, "10/1m"), bound(t, s, "15/1h")
	both := []stint.Layer{{Bound: minute, Key: "key"}, {Bound: hour, Key: "key"}}
	if d, err := s.Decide(ctx, meter.OpTake, both, 2); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	take(t, minute, "key", 3)
	if d := take(t, hour, "key", 13); !d.Allowed || d.Remaining != 0 {
		t.Errorf("15/1h has %d left after 2 of 15", d.Remaining)
	}
	if d := take(t, minute, "key", 6); d.Allowed || d.Remaining != 5 {
		t.Errorf("10/1m has %d left, 5 after 2 and 3 of 10", d.Remaining)
	}
}

// TestListsInTurn asks two processes of which each has another list without names,
// one after the other, as in a deploy that both know of: together they let pass no
// more than the greater.
func TestListsInTurn(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	var all []stint.Bound
	for i, text := range []string{"10/1m", "15/1h sliding_log"} {
		s := open(t, server.URL(), redisstore.Options{Prefix: "turn", Now: clock})
		bound(t, s, []string{"15/1h sliding_log", "10/1m"}[i]) // what the other has
		all = append(all, bound(t, s, text))
	}
	passed := [2]int{}
	for range 40 {
		for i, b := range all {
			if take(t, b, "key", 1).Allowed {
				passed[i]++
			}
		}
	}
	if passed[0]+passed[1] != 15 || passed[0] > 10 {
		t.Errorf("%v passed, 15 together", passed)
	}
}

// TestListsDifferential does the same at random to Redis and to memory: a name has
// four limits, no two of one kind and period, some with names, that come into force
// one after the other; keys come to them in any order. Both answer alike.
func TestListsDifferential(t *testing.T) {
	server := redistest.Start(t)
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	passed, denied := 0, 0
	for round := range rounds {
		p := newChanging(t, server.URL(), uint64(round))
		for range 150 {
			p.step()
		}
		passed, denied = passed+p.passed, denied+p.denied
	}
	if passed < rounds*20 || denied < rounds*10 {
		t.Errorf("%d passed and %d were denied: too little to tell", passed, denied)
	}
}

// A changing is a store in Redis and one in memory, under one name whose limits change.
type changing struct {
	testing.TB
	redis, memory  stint.Store
	now, began     int64
	rnd            *rand.Rand
	lists          []string
	bound          [][2]stint.Bound
	last           map[string]int   // which of them decided about a key
	since          map[string]int64 // from when on
	log            []string
	passed, denied int
}

func newChanging(t testing.TB, url string, seed uint64) *changing {
	const began = 1_790_000_000_000_000_000
	p := &changing{TB: t, rnd: rand.New(rand.NewPCG(seed, 17)), now: began, began: began, last: map[string]int{}, since: map[string]int64{}}
	clock := func() int64 { return p.now }
	p.redis = open(t, url, redisstore.Options{Prefix: fmt.Sprint("random", seed), Now: clock})
	p.memory = memstore.New(memstore.Options{Now: clock})
	all := []string{
		"10/10s", "20/20s burst 7", "8/30s fixed_window", "5/50s burst 9 token_bucket_interval", "12/1m sliding_counter",
		"9/15s sliding_buckets parts 3", "7/14s leaky_queue burst 4", "30/5m as long", "4/16s as short",
		"11/40s sliding_log count_denied", "25/100s burst 15 as other", "5/20s fixed_window count_denied as counts",
	}
	p.rnd.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	p.lists = all[:4]
	return p
}

func (p *changing) step() {
	if n := len(p.bound); n == 0 || n < len(p.lists) && p.rnd.IntN(12) == 0 {
		p.bound = append(p.bound, [2]stint.Bound{bound(p, p.redis, p.lists[n]), bound(p, p.memory, p.lists[n])})
	}
	p.now += p.rnd.Int64N(3) * p.rnd.Int64N(40) * int64(100*time.Millisecond)
	i := p.rnd.IntN(len(p.bound))
	key, cost := fmt.Sprint("key ", p.rnd.IntN(2)), int64(p.rnd.IntN(4))
	p.decides(i, key)
	op := []meter.Op{meter.OpTake, meter.OpTake, meter.OpTake, meter.OpPeek, meter.OpTakeUpTo}[p.rnd.IntN(5)]
	what, verb := fmt.Sprint("op ", op), p.rnd.IntN(48)
	var got [2]stint.Decision
	var errs [2]error
	for k, s := range []stint.Store{p.redis, p.memory} {
		layers := []stint.Layer{{Bound: p.bound[i][k], Key: key}}
		switch {
		case verb < 4:
			what = "refund"
			got[k], errs[k] = s.Refund(ctx, layers, cost)
		case verb == 4:
			what = "reset"
			errs[k] = s.Reset(ctx, layers)
		default:
			got[k], errs[k] = p.bound[i][k].Decide(ctx, op, key, cost)
		}
	}
	p.note("%s %d of %s under %q", what, cost, key, p.lists[i])
	if errs != [2]error{} || got[0] != micros(got[1]) {
		p.Fatalf("%s\n got %+v, %v\nwant %+v, %v", strings.Join(p.log, "\n"), got[0], errs[0], micros(got[1]), errs[1])
	}
	if got[1].Allowed {
		p.passed++
	} else {
		p.denied++
	}
}

// decides notes which limit is asked about a key. Redis forgets others that are idle
// when one alone has been for long, and memory does not: then the key is reset.
func (p *changing) decides(i int, key string) {
	if p.now-p.since[key] >= int64(14*time.Second) {
		for k, s := range []stint.Store{p.redis, p.memory} {
			if err := s.Reset(ctx, []stint.Layer{{Bound: p.bound[i][k], Key: key}}); err != nil {
				p.Fatal(err)
			}
		}
		p.note("forget %s", key)
		p.last[key] = -1
	}
	if p.last[key] != i {
		p.last[key], p.since[key] = i, p.now
	}
}

func (p *changing) note(format string, a ...any) {
	p.log = append(p.log, fmt.Sprintf("%v: ", time.Duration(p.now-p.began))+fmt.Sprintf(format, a...))
}

// TestListsAlone looks at the states: where no list has changed there is nothing
// but the limits' own, and one that has gone is named no more.
func TestListsAlone(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	o := redisstore.Options{Prefix: "alone", Now: func() int64 { return now }}
	s := open(t, server.URL(), o)
	minute := bound(t, s, "10/1m")
	take(t, minute, "key", 2)
	before := get(t, server, redisstore.StateOf(o, "key", minute))
	if before[0] != '=' {
		t.Errorf("a state of one limit is %q", before)
	}
	hour := bound(t, s, "10/1h")
	take(t, hour, "key", 1)
	for _, b := range []stint.Bound{minute, hour} {
		if state := get(t, server, redisstore.StateOf(o, "key", b)); state[0] != '&' {
			t.Errorf("a state of linked limits is %q", state)
		}
	}
	for range 30 { // 10/1m is asked no more, and is idle
		now += int64(5 * time.Minute)
		take(t, hour, "key", 1)
	}
	if state := get(t, server, redisstore.StateOf(o, "key", hour)); state[0] != '=' {
		t.Errorf("two hours later it is %q", state)
	}
	if !slices.Equal(hour.Limits(), list(t, "10/1h")) {
		t.Error("another limit")
	}
}

// TestListsLeft has one of three limits decide alone, until those that have nothing left
// to count go. Asked again, one of these starts with what is in use, though the third
// still counts.
func TestListsLeft(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	for _, s := range []stint.Store{
		open(t, server.URL(), redisstore.Options{Prefix: "left", Now: clock}),
		memstore.New(memstore.Options{Now: clock}),
	} {
		now = 1_790_000_000_000_000_000
		minute, third, day := bound(t, s, "10/1m"), bound(t, s, "20/20m"), bound(t, s, "10/10h")
		for _, b := range []stint.Bound{minute, third, day} {
			take(t, b, "key", 1)
		}
		for range 50 { // 25 hours, more than two drains of each
			now += int64(30 * time.Minute)
			take(t, third, "key", 1)
		}
		take(t, third, "key", 19)
		if d := take(t, minute, "key", 1); d.Allowed {
			t.Errorf("%T: 10/1m has %d left after 20 under another limit", s, d.Remaining+1)
		}
	}
}

// TestListsReserved reserves under one limit, and settles when another has taken its
// place and decided: nothing is given back, and what is charged above counts under
// both, in Redis as in memory.
func TestListsReserved(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	for i, c := range []struct{ before, after string }{
		{"10/1m", "20/1h"},
		{"10/1m sliding_log", "20/1h"},
		{"20/1h", "10/1m sliding_log"},
		{"10/1m fixed_window", "20/1h sliding_log"},
		{"10/1h sliding_buckets", "20/1h token_bucket_interval"},
	} {
		t.Run(c.before+"; "+c.after, func(t *testing.T) {
			var left [2][4]int64
			for k, s := range []stint.Store{
				open(t, server.URL(), redisstore.Options{Prefix: fmt.Sprint("reserved", i), Now: clock}),
				memstore.New(memstore.Options{Now: clock}),
			} {
				before, after := bound(t, s, c.before), bound(t, s, c.after)
				var ids []stint.ReservationID
				for range 2 {
					_, id, err := s.Reserve(ctx, []stint.Layer{{Bound: before, Key: "key"}}, 3, time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					ids = append(ids, id)
				}
				take(t, after, "key", 1)
				for n, cost := range []int64{0, 5} {
					if _, err := s.Settle(ctx, ids[n], cost); err != nil {
						t.Fatal(err)
					}
					for m, b := range []stint.Bound{before, after} {
						d, err := b.Decide(ctx, meter.OpPeek, "key", 0)
						if err != nil {
							t.Fatal(err)
						}
						left[k][2*n+m] = d.Remaining
					}
				}
			}
			if left[0] != left[1] {
				t.Errorf("%v left in Redis, %v in memory", left[0], left[1])
			}
		})
	}
}

// TestListsModes changes a limit without a name in each mode that asks the server:
// the next starts with what is in use.
func TestListsModes(t *testing.T) {
	server := redistest.Start(t)
	for _, mode := range []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async} {
		t.Run(mode.String(), func(t *testing.T) {
			now := int64(1_790_000_000_000_000_000)
			s := open(t, server.URL(), redisstore.Options{Prefix: "mode" + mode.String(), Now: func() int64 { return now }})
			before := bound(t, s, "1000/1h")
			if d := take(t, before, "key", 1000); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			after := bound(t, s.Mode(mode), "1000/2h")
			passed := 0
			for range 2000 {
				if take(t, after, "key", 1).Allowed {
					passed++
				}
			}
			if most := map[redisstore.Mode]int{redisstore.Async: 10}[mode]; passed > most {
				t.Errorf("%d passed, at most %d", passed, most)
			}
		})
	}
}

// TestListsCharged charges a key with what it owes under two limits of which one has
// taken the place of the other, in one call: each counts all of it, and so does one
// that meets the key thereby.
func TestListsCharged(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	for i, met := range []bool{true, false} {
		s := open(t, server.URL(), redisstore.Options{Prefix: fmt.Sprint("owed", i), Now: func() int64 { return now }})
		minute, hour := bound(t, s, "100/1m"), bound(t, s, "100/1h")
		take(t, minute, "key", 10)
		if met {
			take(t, hour, "key", 10)
		}
		err := s.Charge(ctx, "id", []fallback.Charge{{Bound: minute, Key: "key", Units: 5}, {Bound: hour, Key: "key", Units: 7}})
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]int64{true: 100 - 10 - 10 - 5 - 7, false: 100 - 10 - 5 - 7}[met]
		for _, b := range []stint.Bound{minute, hour} {
			d, err := b.Decide(ctx, meter.OpPeek, "key", 0)
			if err != nil || d.Remaining != want {
				t.Errorf("met %v: %v has %d left, want %d; %v", met, b.Limits()[0], d.Remaining, want, err)
			}
		}
	}
}

// TestListsCluster replaces a limit by one of another period in a cluster: the states
// of a key are in one slot, so the script finds them.
func TestListsCluster(t *testing.T) {
	s := open(t, redistest.StartCluster(t, 3, 0).URL(), redisstore.Options{})
	before, after := bound(t, s, "10/1h"), bound(t, s, "10/2h")
	for i := range 30 {
		key := fmt.Sprint("key ", i)
		if d := take(t, before, key, 10); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		if d := take(t, after, key, 1); d.Allowed {
			t.Errorf("%s has a fresh limit: %+v", key, d)
		}
		two := []stint.Layer{{Bound: after, Key: key}, {Bound: after, Key: key + "another"}}
		if d, err := s.Decide(ctx, meter.OpTake, two, 1); err != nil || d.Allowed || d.Denied != 1 {
			t.Errorf("with another key: %+v, %v", d, err)
		}
	}
}

// TestListsPermissions has a user with the permissions that docs/REDIS.md lists ask
// under limits of one name that may have taken the place of each other.
func TestListsPermissions(t *testing.T) {
	text, err := os.ReadFile("../docs/REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER stint .*$`).FindString(string(text))
	if line == "" {
		t.Fatal("docs/REDIS.md has no line ACL SETUSER")
	}
	server := redistest.Start(t)
	server.CLI(t, strings.Fields(line)...)
	url := strings.Replace(server.URL(), "://", "://stint:password@", 1)
	s := open(t, url, redisstore.Options{Prefix: "stint"})
	for _, text := range []string{"10/1h", "10/2h", "10/3h sliding_log", "10/2h", "10/4h, 10/5h"} {
		b := bound(t, s, text)
		for _, key := range []string{"key", "another"} {
			if _, err := b.Decide(ctx, meter.OpTake, key, 1); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// TestListsAtOnce has two processes ask at once, on the server's clock, each under its
// own list: 15 pass, as one by one. Both states stay for as long as either counts.
func TestListsAtOnce(t *testing.T) {
	server := redistest.Start(t)
	o := redisstore.Options{Prefix: "once", Timeout: time.Minute}
	texts := []string{"10/10h", "15/20h sliding_log"}
	var all []stint.Bound
	for i, text := range texts {
		s := open(t, server.URL(), o)
		bound(t, s, texts[1-i]) // what the other has
		all = append(all, bound(t, s, text))
	}
	var passed [2]atomic.Int64
	var asking sync.WaitGroup
	for n := range 64 {
		asking.Go(func() {
			for range 10 {
				d, err := all[n%2].Decide(ctx, meter.OpTake, "key", 1)
				if err != nil {
					t.Error(err)
				} else if d.Allowed {
					passed[n%2].Add(1)
				}
			}
		})
	}
	asking.Wait()
	if a, b := passed[0].Load(), passed[1].Load(); a+b != 15 || a > 10 {
		t.Errorf("%d and %d passed, 15 together", a, b)
	}
	c := client(t, server.Addr)
	for i, b := range all {
		ms, err := c.Do(ctx, c.B().Pttl().Key(redisstore.StateOf(o, "key", b)).Build()).AsInt64()
		if err != nil || time.Duration(ms)*time.Millisecond < 18*time.Hour {
			t.Errorf("%s is kept for %v, %v", texts[i], time.Duration(ms)*time.Millisecond, err)
		}
	}
}
