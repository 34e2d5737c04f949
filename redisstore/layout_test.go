package redisstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestForms has two processes hold different forms of one limit, in turns, as in a
// rolling deploy: neither lets pass more than its own form does, whatever the
// other counts.
func TestForms(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range []struct {
		a, b string
		most int64 // of both together
	}{
		{"10/1m", "20/1m", 20},
		{"10/1m fixed_window", "10/1h fixed_window", 10},
		{"10/1m", "10/1m sliding_log", 10},
		{"5/1m sliding_log", "5/1m sliding_buckets", 5},
		{"10/1m", "10/1m leaky_queue burst 9", 10},
		{"10/1m fixed_window", "10 per day in UTC", 10},
		{"10/1m sliding_counter", "10/1m token_bucket_interval", 10},
		{"10/1m sliding_buckets", "10/1m sliding_buckets parts 7", 10},
		{"20/1h sliding_log count_denied", "5/1h sliding_log", 20},
	} {
		t.Run(c.a+", "+c.b, func(t *testing.T) {
			now := int64(1_790_000_000_000_000_000)
			clock := func() int64 { return now }
			a := formed(t, open(t, server.URL(), redisstore.Options{Prefix: t.Name(), Now: clock}), c.a)
			b := formed(t, open(t, server.URL(), redisstore.Options{Prefix: t.Name(), Now: clock}), c.b)
			passed := map[stint.Bound]int64{}
			for range 100 {
				for _, one := range []stint.Bound{a, b} {
					if take(t, one, "key", 1).Allowed {
						passed[one]++
					}
				}
			}
			if together := passed[a] + passed[b]; together > c.most || passed[b] > b.Limits()[0].Capacity() {
				t.Errorf("%d and %d passed, at most %d together", passed[a], passed[b], c.most)
			}
		})
	}
}

// formed binds a limit under the name of all forms of one.
func formed(t *testing.T, s stint.Store, text string) stint.Bound {
	t.Helper()
	l, err := stint.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Bind("api", l.WithName("one"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFormsMany changes a limit more often than a state keeps forms: nothing is
// let through again.
func TestFormsMany(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	s := open(t, server.URL(), redisstore.Options{Prefix: "stint", Now: func() int64 { return now }})
	if passed := passes(t, formed(t, s, "10/1h"), 12); passed != 10 {
		t.Fatalf("%d passed", passed)
	}
	for i := range 8 {
		for _, text := range []string{"10/%dh", "10/%dh fixed_window", "10/%dh sliding_log", "10/%dh sliding_counter", "10/%dh sliding_buckets"} {
			text = fmt.Sprintf(text, 20+i)
			if passed := passes(t, formed(t, s, text), 3); passed != 0 {
				t.Errorf("%s: %d passed", text, passed)
			}
		}
	}
	if size := len(get(t, server, redisstore.StateOf(redisstore.Options{Prefix: "stint"}, "key", formed(t, s, "10/20h")))); size > 400 {
		t.Errorf("a state of %d bytes", size)
	}
}

// TestFormsBeyondFour exhausts a limit, and asks under four others that hold less
// and take longer: the first, whose place went, is still exhausted when it is
// asked again, and for no longer than it was.
func TestFormsBeyondFour(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	s := open(t, server.URL(), redisstore.Options{Prefix: "beyond", Now: func() int64 { return now }})
	texts := []string{"10/h", "1/20h", "1/30h", "1/40h", "1/50h"}
	take(t, formed(t, s, texts[0]), "key", 10)
	for i := range 40 {
		if passed := passes(t, formed(t, s, texts[i%5]), 1); passed != 0 {
			t.Fatalf("%s lets pass one more", texts[i%5])
		}
	}
	now += int64(time.Hour - time.Microsecond)
	for _, text := range texts[1:] {
		take(t, formed(t, s, text), "key", 1)
	}
	first := formed(t, s, texts[0])
	if d, err := first.Decide(ctx, meter.OpPeek, "key", 1); err != nil || d.Remaining != 0 {
		t.Errorf("a microsecond before it ends: %+v, %v", d, err)
	}
	now += int64(time.Microsecond)
	if d := take(t, first, "key", 1); !d.Allowed {
		t.Errorf("an hour later: %+v", d)
	}
}

// TestFormsBeyondFourRefunded gives back under a fifth form, which drops none of
// the others, and what is held of one that went.
func TestFormsBeyondFourRefunded(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	s := open(t, server.URL(), redisstore.Options{Prefix: "refunded", Now: func() int64 { return now }})
	var all []stint.Bound
	for _, text := range []string{"10/h", "10/20h", "10/30h", "10/40h", "10/50h", "10/60h"} {
		all = append(all, formed(t, s, text))
	}
	take(t, all[0], "key", 10)
	for _, one := range all[1:5] { // the first goes
		take(t, one, "key", 1)
	}
	for range 4 {
		if _, err := s.Refund(ctx, []stint.Layer{{Bound: all[5], Key: "key"}}, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{1, 2, 3, 4, 0} {
		if d, err := all[i].Decide(ctx, meter.OpPeek, "key", 1); err != nil || d.Remaining != 4 {
			t.Errorf("%v: %+v, %v", all[i].Limits(), d, err)
		}
	}
	now += int64(11 * time.Hour)
	if d, err := all[1].Decide(ctx, meter.OpPeek, "key", 1); err != nil || d.Remaining != 9 { // it has counted all along
		t.Errorf("11 hours later: %+v, %v", d, err)
	}
	if err := s.Reset(ctx, []stint.Layer{{Bound: all[5], Key: "key"}}); err != nil {
		t.Fatal(err)
	}
	if d := take(t, all[0], "key", 10); !d.Allowed {
		t.Errorf("after a reset: %+v", d)
	}
}

// TestFormsOfManyNames gives back and resets under a name that many limits were
// bound under: no call is about more of them than a request may have.
func TestFormsOfManyNames(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), redisstore.Options{Prefix: "names"})
	c := client(t, server.Addr)
	var all []stint.Bound
	for i := range 3*stint.MaxLimits + 1 {
		l := parse(t, "10/h").WithName(fmt.Sprint("limit", i))
		b, err := s.Bind("api", l)
		if err != nil {
			t.Fatal(err)
		}
		take(t, b, "key", 10)
		all = append(all, b)
	}
	layers := []stint.Layer{{Bound: all[0], Key: "key"}}
	calls := func(what string, do func() error) {
		t.Helper()
		before := callsOf(t, c, "evalsha")
		if err := do(); err != nil {
			t.Fatal(what, err)
		}
		if n := callsOf(t, c, "evalsha") - before; n != 4 {
			t.Errorf("%s: %d calls, want 4", what, n)
		}
	}
	left := func(what string, want int64) {
		t.Helper()
		for _, b := range all {
			if d, err := b.Decide(ctx, meter.OpPeek, "key", 1); err != nil || d.Remaining != want {
				t.Fatalf("%s: %v: %+v, %v", what, b.Limits(), d, err)
			}
		}
	}
	calls("refund", func() error {
		d, err := s.Refund(ctx, layers, 3)
		if d.Remaining != 3 {
			t.Errorf("refund: %+v", d)
		}
		return err
	})
	left("refund", 3)
	calls("reset", func() error { return s.Reset(ctx, layers) })
	left("reset", 10)
}

func passes(t *testing.T, b stint.Bound, tries int) (passed int) {
	t.Helper()
	for range tries {
		if take(t, b, "key", 1).Allowed {
			passed++
		}
	}
	return passed
}

func get(t *testing.T, server *redistest.Server, key string) string {
	t.Helper()
	c := client(t, server.Addr)
	v, err := c.Do(ctx, c.B().Get().Key(key).Build()).ToString()
	if err != nil {
		t.Fatal(key, err)
	}
	return v
}

// TestFormsAlternating asks seldom, under two forms in turn, of which one has nothing
// left to count each time while the other has: neither keeps the other out, in
// Redis as in memory.
func TestFormsAlternating(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range []struct {
		slow, quick string
		used        int64 // of the slow one, at first
		wait        time.Duration
		denied      [2]int // of 20 each
	}{
		{"1000/h", "10/s", 0, 3 * time.Second, [2]int{}},
		{"1000/h", "10/s", 1000, 4 * time.Second, [2]int{16, 1}}, // what passes under the quick one counts under both
		{"10/24h", "5/s", 10, 2 * time.Second, [2]int{20, 1}},
		{"10/24h", "5/s fixed_window", 10, 2 * time.Second, [2]int{20, 1}},
		{"10/24h sliding_log", "5/s sliding_log", 10, 2 * time.Second, [2]int{20, 0}},
		{"10/24h fixed_window", "5/s sliding_counter", 10, 2 * time.Second, [2]int{20, 1}},
		{"10/24h sliding_counter", "5/s token_bucket_interval", 10, 2 * time.Second, [2]int{20, 1}},
		{"10/24h sliding_buckets", "5/s leaky_queue burst 4", 10, 2 * time.Second, [2]int{20, 1}},
		{"10 per day in UTC", "5/s sliding_buckets", 10, 2 * time.Second, [2]int{20, 1}},
	} {
		t.Run(fmt.Sprint(c.slow, ", ", c.quick, ", ", c.used), func(t *testing.T) {
			var now int64
			clock := func() int64 { return now }
			for _, s := range []stint.Store{
				memstore.New(memstore.Options{Now: clock}),
				open(t, server.URL(), redisstore.Options{Prefix: t.Name(), Now: clock}),
			} {
				now = 1_790_000_000_000_000_000
				both := [2]stint.Bound{formed(t, s, c.slow), formed(t, s, c.quick)}
				take(t, both[0], "key", c.used)
				var denied [2]int
				for range 20 {
					now += int64(c.wait)
					for i, one := range both {
						if !take(t, one, "key", 1).Allowed {
							denied[i]++
						}
					}
				}
				if denied != c.denied {
					t.Errorf("%T: %v of 20 denied, want %v", s, denied, c.denied)
				}
			}
		})
	}
}

// TestFormsIdle has former forms go once none of them has anything left to count,
// or that one has not, and another alone was asked for as long as any remembers;
// then a state becomes what it is without one.
func TestFormsIdle(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range []struct {
		former, next string
		pauses       []time.Duration // between requests under the next form
		last         string          // what the state begins with then
	}{
		{"10/1m fixed_window", "10/1h", []time.Duration{time.Minute}, "&"},
		{"10/1m fixed_window", "10/1h", []time.Duration{time.Hour}, "=g"},
		{"10/1m", "100/1h sliding_log", []time.Duration{50 * time.Minute, 50 * time.Minute}, "&"},
		{"10/1m", "100/1h sliding_log", []time.Duration{50 * time.Minute, 50 * time.Minute, 20 * time.Minute}, "=l"},
		{"100/1h sliding_log", "100/2h sliding_log", []time.Duration{110 * time.Minute, 110 * time.Minute}, "&"},
		{"100/1h sliding_log", "100/2h sliding_log", []time.Duration{110 * time.Minute, 110 * time.Minute, 110 * time.Minute}, "=l"},
		{"10 per day in UTC", "100/60h sliding_log", []time.Duration{23 * time.Hour}, "=l"},
	} {
		t.Run(fmt.Sprint(c.former, ", ", c.next, ", ", c.pauses), func(t *testing.T) {
			now := int64(1_790_035_200_000_000_000) // 00:00 UTC
			prefix := strings.ReplaceAll(t.Name(), " ", "")
			s := open(t, server.URL(), redisstore.Options{Prefix: prefix, Now: func() int64 { return now }})
			now += int64(time.Hour)
			take(t, formed(t, s, c.former), "key", 3)
			b := formed(t, s, c.next)
			take(t, b, "key", 1)
			key := redisstore.StateOf(redisstore.Options{Prefix: prefix}, "key", b)
			if state := get(t, server, key); !strings.HasPrefix(state, "&") {
				t.Fatalf("a state of two forms: %q", state)
			}
			for _, pause := range c.pauses {
				now += int64(pause)
				take(t, b, "key", 1)
			}
			if state := get(t, server, key); !strings.HasPrefix(state, c.last) {
				t.Fatalf("the state is %q", state)
			}
		})
	}
}

// TestVersion has states that are written in a way that this version does not
// know be errors, and stay as they are.
func TestVersion(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), redisstore.Options{Prefix: "stint"})
	c := client(t, server.Addr)
	for i, text := range texts {
		b := bind(t, s, text)
		for _, state := range []string{"#1", "5171795229355387954", "=z1:2:3:4", "&9:", "=", "x"} {
			key := fmt.Sprint("key", i, state)
			name := redisstore.StateOf(redisstore.Options{Prefix: "stint"}, key, b)
			do(t, c, "SET", name, state)
			if _, err := b.Decide(ctx, meter.OpTake, key, 1); !errors.Is(err, redisstore.ErrConfiguration) {
				t.Errorf("%s on %q: %v", text, state, err)
			}
			if now := get(t, server, name); now != state {
				t.Errorf("%s made %q of %q", text, now, state)
			}
		}
	}
}

// TestMigrate takes over states as they were before they had a version: they keep
// their time, and what is carried over to another form its units.
func TestMigrate(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	now := int64(1_790_000_000_000_000_000)
	us := now / 1000
	at := func(ahead time.Duration) string { return fmt.Sprintf("%016d", us+int64(ahead/time.Microsecond)) }
	log := func(first, last, size uint32, entries string) string {
		var b []byte
		for _, v := range []float64{float64(us - 5e6), float64(us - 1e6), 1, 5} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		for _, v := range []uint32{first, last, size} {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return "l60000000:*" + string(b) + entries + strings.Repeat("\x00", int(size-last))
	}
	for _, c2 := range []struct {
		old, text       string
		remaining, wait int64 // µs
	}{
		{redisstore.Shape("100/s") + at(500*time.Millisecond), "100/s", 50, 500_000},
		{"-" + strings.TrimPrefix(redisstore.Shape("10/s leaky_queue burst 9"), "-") + at(500*time.Millisecond), "10/s leaky_queue burst 9", 5, 500_000},
		{"101" + at(500*time.Millisecond), "10/s", 5, 500_000},
		{"101" + at(time.Hour), "10/s", 0, 1_000_000},
		{"g60000000:7:7:" + at(30*time.Second) + ":3", "7/1m", 3, 30_000_001},
		{"g60000000:7:7:" + at(30*time.Second) + ":0", "14/1m", 10, 15_000_000},
		{fmt.Sprintf("i60000000:10:10:%d:4", us/60e6), "10/1m token_bucket_interval", 6, 60e6 - us%60e6},
		{fmt.Sprintf("w60000000:%d:4", us/60e6), "10/1m fixed_window", 6, 60e6 - us%60e6},
		{fmt.Sprintf("s60000000:%d:4:0", us/60e6), "10/1m sliding_counter", 6, 120e6 - us%60e6},
		{fmt.Sprintf("b60000000:60:%d:%d:4:4:", us/1e6, us/1e6), "10/1m sliding_buckets", 6, 61e6 - us%1e6},
		{fmt.Sprintf("l60000000:%d:%d:3:3:", us-1e6, us-1e6), "10/1m sliding_log", 7, 59e6},
		{fmt.Sprintf("l60000000:%d:%d:3:3:", us-1e6, us-1e6), "10/1m", 7, 18e6},
		{log(55, 59, 80, "\x80\x92\xf4\x01"), "10/1m sliding_log", 5, 59e6},
		{fmt.Sprintf("w60000000:%d:4", us/60e6), "10/1h fixed_window", 6, 3600e6 - us%3600e6},
	} {
		t.Run(c2.old+" "+c2.text, func(t *testing.T) {
			s := open(t, server.URL(), redisstore.Options{Prefix: "p", Migrate: true, Now: func() int64 { return now }})
			b := formed(t, s, c2.text)
			do(t, c, "SET", "p:{key}:api/one", c2.old)
			defer do(t, c, "FLUSHALL")
			d, err := b.Decide(ctx, meter.OpPeek, "key", 1)
			if err != nil || d.Remaining != c2.remaining || d.ResetAfter != time.Duration(c2.wait)*time.Microsecond {
				t.Errorf("%+v, %v", d, err)
			}
			take(t, b, "key", 1)
			if d := take(t, b, "key", 0); d.Remaining != max(c2.remaining-1, 0) {
				t.Errorf("after a take: %+v", d)
			}
			if err := s.Reset(ctx, []stint.Layer{{Bound: b, Key: "key"}}); err != nil {
				t.Fatal(err)
			}
			other := formed(t, open(t, server.URL(), redisstore.Options{Prefix: "p", Migrate: true, Now: func() int64 { return now }}), c2.text)
			if d := take(t, other, "key", 0); d.Remaining != d.Limit {
				t.Errorf("reset: %+v", d)
			}
		})
	}
}

// TestTags spreads keys over as many tags as there are, evenly over slots, with
// the key's own slot close behind.
func TestTags(t *testing.T) {
	for _, tags := range []int{0, 1, 64, 4096} {
		want, perTag, begins := tags, map[uint16]int{}, redisstore.Begins(tags)
		if tags == 0 {
			want = 256
		}
		for i := range 100_000 {
			key := fmt.Sprint("client", i)
			slot := redisstore.Slot(begins(key))
			if perTag[slot]++; int(redisstore.Slot(key)-slot) >= 16384/want {
				t.Fatalf("%d tags: %s of slot %d lies in %d", tags, key, redisstore.Slot(key), slot)
			}
		}
		if len(perTag) != want {
			t.Errorf("%d slots of %d tags", len(perTag), want)
		}
	}
	for _, tags := range []int{-1, 3, 32768} {
		if _, err := redisstore.New(redisstore.Options{URL: "redis://127.0.0.1:1", Tags: tags}); err == nil || !strings.Contains(err.Error(), "power of two") {
			t.Errorf("%d tags: %v", tags, err)
		}
	}
}

// TestFormsReserved changes a limit and changes it back while a reservation is
// open: it gives back nothing then, and frees its place.
func TestFormsReserved(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	for _, text := range []string{"10/1h", "10/1h token_bucket_interval", "10/1h fixed_window", "10/1h sliding_log", "10/1h sliding_counter", "10/1h sliding_buckets"} {
		s := open(t, server.URL(), redisstore.Options{Now: func() int64 { return now }})
		b := formed(t, s, text)
		layers := []stint.Layer{{Bound: b, Key: "key"}}
		_, before, err := s.Reserve(ctx, layers, 4, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		take(t, formed(t, s, "100/2h"), "key", 1)
		formed(t, s, text)
		if d, err := s.Settle(ctx, before, 1); err != nil || d.Remaining != 5 {
			t.Errorf("%s: settled at 1 of 4 after two changes: %+v, %v", text, d, err)
		}
		_, after, err := s.Reserve(ctx, layers, 3, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if d, err := s.Settle(ctx, after, 1); err != nil || d.Remaining != 4 {
				t.Errorf("%s: settled at 1 of 3: %+v, %v", text, d, err)
			}
		}
	}
}

// TestFormsHeld has each that was bound decide by its own form, and answer for
// what was reserved under it.
func TestFormsHeld(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), redisstore.Options{})
	a, b := formed(t, s, "10/1h"), formed(t, s, "20/1h")
	if got := take(t, a, "key", 10); !got.Allowed || got.Limit != 10 {
		t.Errorf("under 10/1h: %+v", got)
	}
	if got := take(t, b, "key", 4); !got.Allowed || got.Limit != 20 || got.Remaining != 6 {
		t.Errorf("under 20/1h: %+v", got)
	}
	if got := take(t, a, "key", 1); got.Allowed || got.Limit != 10 {
		t.Errorf("under 10/1h again: %+v", got)
	}
	_, id, err := s.Reserve(ctx, []stint.Layer{{Bound: b, Key: "key"}}, 4, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	formed(t, s, "30/1h")
	if d, err := s.Settle(ctx, id, 1); err != nil || d.Limit != 20 || d.Remaining != 5 {
		t.Errorf("settled at 1 of 4: %+v, %v", d, err)
	}
}

// TestChargeForms charges a key with what it owes under two forms at once.
func TestChargeForms(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), redisstore.Options{})
	a, b := formed(t, s, "10/1h"), formed(t, s, "20/1h")
	if err := s.Charge(ctx, "once", []fallback.Charge{{Bound: a, Key: "key", Units: 3}, {Bound: b, Key: "key", Units: 4}}); err != nil {
		t.Fatal(err)
	}
	if d := take(t, a, "key", 0); d.Remaining != 3 {
		t.Errorf("of 10, 7 were owed: %+v", d)
	}
}

// TestRefundOfForms gives back to a form what makes those beside it idle: its own
// state stays, whichever place it had.
func TestRefundOfForms(t *testing.T) {
	server := redistest.Start(t)
	for _, test := range []struct {
		name   string
		others []string
		wait   time.Duration
		last   int // of the others: it is asked again before the refund
		back   int64
	}{
		{"three", []string{"20/20s", "20/200s"}, 10 * time.Second, 0, 1},
		{"more than four", []string{"20/20s", "20/21s", "20/22s", "20/23s"}, 8500 * time.Millisecond, -1, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := int64(1_790_000_000_000_000_000)
			s := open(t, server.URL(), redisstore.Options{Prefix: test.name, Now: func() int64 { return now }})
			slow := formed(t, s, "10/100h")
			take(t, slow, "key", 8)
			var others []stint.Bound
			for _, text := range test.others {
				one := formed(t, s, text)
				take(t, one, "key", 1)
				others = append(others, one)
			}
			now += int64(test.wait)
			if test.last >= 0 {
				take(t, others[test.last], "key", 1)
			}
			d, err := s.Refund(ctx, []stint.Layer{{Bound: slow, Key: "key"}}, test.back)
			if err != nil {
				t.Fatal(err)
			}
			after, err := slow.Decide(ctx, meter.OpPeek, "key", 1)
			if err != nil || after.Remaining != d.Remaining || after.ResetAfter != d.ResetAfter {
				t.Errorf("the refund says %d remain and all after %v, a look after it %d and %v (%v)", d.Remaining, d.ResetAfter, after.Remaining, after.ResetAfter, err)
			}
		})
	}
}
