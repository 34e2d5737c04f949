package memstore_test

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// forms returns limiters of one name, each with a form of one limit.
func forms(t testing.TB, s stint.Store, texts ...string) []*stint.Limiter {
	var all []*stint.Limiter
	for _, text := range texts {
		all = append(all, under(t, s, "api", limit(t, text).WithName("calls")))
	}
	return all
}

func taken(t testing.TB, l *stint.Limiter, key string, cost int64) stint.Decision {
	t.Helper()
	d, err := l.Take(ctx, key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestFormsSideBySide has two limiters of one name with limits of their own:
// each goes by its own, and what passes counts for both.
func TestFormsSideBySide(t *testing.T) {
	var c clock
	l := forms(t, memstore.New(memstore.Options{Now: c.now}), "10/1h", "100/1h")
	for i := range 10 {
		if !taken(t, l[i%2], "a", 1).Allowed {
			t.Fatalf("request %d", i)
		}
	}
	if taken(t, l[0], "a", 1).Allowed {
		t.Error("10 an hour let pass 11")
	}
	if d := taken(t, l[1], "a", 1); !d.Allowed || d.Remaining != 89 {
		t.Errorf("100 an hour, 10 used: %+v", d)
	}
	if got := l[0].Limits()[0].Count(); got != 10 {
		t.Errorf("the first goes by %d an hour", got)
	}
}

// TestFormsLockNobodyOut asks seldom, under two forms in turn, of which one is
// exhausted for a day: the other has nothing to count when it is next asked, and
// still knows that it has met the key.
func TestFormsLockNobodyOut(t *testing.T) {
	var c clock
	l := forms(t, memstore.New(memstore.Options{Now: c.now}), "10/24h", "5/s")
	taken(t, l[0], "a", 10)
	denied := 0
	for range 20 {
		c.advance(2 * time.Second)
		taken(t, l[0], "a", 1)
		if !taken(t, l[1], "a", 1).Allowed {
			denied++
		}
	}
	if denied != 1 {
		t.Errorf("%d of 20 denied, want the first", denied)
	}
}

// TestFormsBackAndForth changes a limiter's limits thousands of times: a key gets
// no more of either form than that form says.
func TestFormsBackAndForth(t *testing.T) {
	var c clock
	c.advance(1000 * time.Hour)
	l := under(t, memstore.New(memstore.Options{Now: c.now}), "api", limit(t, "100/1h burst 10"))
	passed := int64(0)
	for i := range 5000 {
		text := []string{"100/1h burst 10", "10/24h burst 10", "100/1h fixed_window", "10/1h sliding_log"}[i%4]
		if err := l.SetLimits(limit(t, text)); err != nil {
			t.Fatal(err)
		}
		passed += taken(t, l, "a", 1).Taken
	}
	if passed != 100 { // what 100/1h fixed_window has
		t.Errorf("%d passed at one instant", passed)
	}
}

// TestFormsOfLists finds limits by their names, else by algorithm and period, and
// never by their place; one without a part starts with the greatest use.
func TestFormsOfLists(t *testing.T) {
	list := func(texts ...string) (all []stint.Limit) {
		for _, text := range texts {
			all = append(all, limit(t, text))
		}
		return all
	}
	for _, c := range []struct {
		name     string
		from, to []stint.Limit
		used     int64
		want     []int64 // remaining, of each
	}{
		{"another order", list("10/1m", "100/1h"), list("100/1h", "10/1m"), 5, []int64{95, 5}},
		{"one more", list("10/1m"), list("10/1m", "100/1h"), 5, []int64{5, 100}},
		{"another period", list("10/1m"), list("100/1h"), 5, []int64{95}},
		{"one of two becomes another", list("10/1m", "100/1h"), list("10/1m", "100/24h"), 5, []int64{5, 95}},
		{"two others", list("10/1m", "100/1h"), list("50/2m", "500/2h"), 5, []int64{45, 495}},
		{"by name", []stint.Limit{limit(t, "10/1m").WithName("a"), limit(t, "100/1h").WithName("b")},
			[]stint.Limit{limit(t, "200/1h").WithName("b"), limit(t, "20/2h").WithName("c")}, 5, []int64{195, 15}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var clock clock
			s := memstore.New(memstore.Options{Now: clock.now})
			before, after := under(t, s, "api", c.from...), under(t, s, "api", c.to...)
			taken(t, before, "a", c.used)
			b, _ := s.Bind("api", c.to...)
			answers := make([]stint.Decision, len(c.to))
			if _, err := s.Decide(ctx, meter.OpPeek, []stint.Layer{{Bound: b, Key: "a", Answers: answers}}, 0); err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if answers[i].Remaining != want {
					t.Errorf("%v: %d remain, want %d", c.to[i], answers[i].Remaining, want)
				}
			}
			d, before2 := taken(t, after, "a", 1), taken(t, before, "a", 0)
			if !d.Allowed || before2.Remaining != c.from[0].Capacity()-c.used-1 {
				t.Errorf("the form before counts on: %+v, %+v", d, before2)
			}
		})
	}
}

// TestFormsAtMostFour drops the form that is idle soonest, and keeps the key
// exhausted.
func TestFormsAtMostFour(t *testing.T) {
	var c clock
	s := memstore.New(memstore.Options{Now: c.now})
	all := forms(t, s, "10/24h", "10/1h", "10/2h", "10/3h", "10/4h", "10/5h", "10/6h", "10/7h")
	for _, l := range all {
		taken(t, l, "a", 10)
	}
	if n := s.Stats().Keys; n != 4 {
		t.Errorf("%d states of one key", n)
	}
	for _, l := range all {
		if d := taken(t, l, "a", 1); d.Allowed {
			t.Errorf("%v: %+v", l.Limits(), d)
		}
	}
}

// TestFormsGo holds a former form for as long as it counts, and then no longer,
// also while its keys are busy under another; maps that a flood filled shrink.
func TestFormsGo(t *testing.T) {
	var c clock
	c.advance(1_000_000 * time.Hour)
	s := memstore.New(memstore.Options{Now: c.now})
	l := under(t, s, "api", limit(t, "10/1h burst 10"))
	const keys = 5000
	for i := range keys {
		taken(t, l, fmt.Sprint(i), 10)
	}
	alone := s.Stats()
	if err := l.SetLimits(limit(t, "1000/1h burst 1000")); err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		taken(t, l, fmt.Sprint(i), 1)
	}
	both := s.Stats()
	t.Logf("a key: %d bytes in one form, %d in two", alone.Bytes/keys, both.Bytes/keys)
	if both.Keys != 2*keys || both.Limits != 2 {
		t.Errorf("%+v", both)
	}
	for range 150 { // minutes, for a drain of two hours
		c.advance(time.Minute)
		s.Stats()
		for i := range 10 {
			taken(t, l, fmt.Sprint(i), 15)
		}
	}
	if st := s.Stats(); st.Limits != 1 || st.Keys > keys {
		t.Errorf("the former form is still there: %+v", st)
	}
	c.advance(24 * time.Hour)
	taken(t, l, "0", 1)
	for range 3 {
		c.advance(time.Minute)
		s.Stats()
	}
	if st := s.Stats(); st.Bytes > both.Bytes/2 {
		t.Errorf("%d bytes are left of %d", st.Bytes, both.Bytes)
	}
}

// TestFormsManyCallers gives each of many keys limits of its own, and one key
// many: none is locked out, and nothing stays.
func TestFormsManyCallers(t *testing.T) {
	var c clock
	c.advance(1_000_000 * time.Hour)
	s := memstore.New(memstore.Options{Now: c.now})
	for i := range 3000 {
		l := under(t, s, "callers", stint.New(int64(5+i), time.Hour).WithName("callers"))
		if d := taken(t, l, fmt.Sprint("key", i), 5); !d.Allowed || d.Remaining != int64(i) {
			t.Fatalf("limit %d: %+v", i, d)
		}
		if d := taken(t, l, "one", 1); d.Remaining < 4 {
			t.Fatalf("limit %d: %+v", i, d)
		}
		c.advance(time.Second)
	}
	runtime.GC()
	c.advance(48 * time.Hour)
	released(t, s, 0)
	if st := s.Stats(); st.Keys != 0 || st.Bytes > 1<<16 {
		t.Errorf("left over: %+v", st)
	}
}

// TestFormsRestarted finds the forms of keys again after a restart.
func TestFormsRestarted(t *testing.T) {
	var c clock
	s := memstore.New(memstore.Options{Now: c.now})
	texts := []string{"10/24h", "100/1h", "50/1h sliding_log"}
	for round := range 3 {
		l := forms(t, s, texts...)
		if round == 0 {
			taken(t, l[0], "a", 10)
			taken(t, l[1], "a", 20)
		}
		for i, want := range []int64{0, 70, 20} {
			if d, err := l[i].Peek(ctx, "a", 1); err != nil || d.Remaining != want {
				t.Errorf("round %d, %s: %+v, %v, want %d remaining", round, texts[i], d, err, want)
			}
		}
		var file bytes.Buffer
		if err := s.Save(&file); err != nil {
			t.Fatal(err)
		}
		s = memstore.New(memstore.Options{Now: c.now})
		if err := s.Load(&file); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFormsRace changes limits without a pause under many goroutines, at periods
// of a millisecond: no more passes than the laxest form says.
func TestFormsRace(t *testing.T) {
	s := memstore.New(memstore.Options{})
	l := under(t, s, "api", limit(t, "20/1ms burst 20"))
	var passed atomic.Int64
	var wg sync.WaitGroup
	begun, stop := time.Now(), make(chan struct{})
	for range 1000 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					ok, err := l.Allow(ctx, "a")
					if err != nil {
						t.Error(err)
						return
					}
					if ok {
						passed.Add(1)
					}
				}
			}
		})
	}
	changes := 0
	for time.Since(begun) < time.Second || passed.Load() < 100 && time.Since(begun) < time.Minute {
		for _, text := range []string{"10/1ms fixed_window", "20/1ms burst 20", "20/1ms sliding_log", "5/1ms burst 20 leaky_queue", "20/1ms sliding_buckets"} {
			if err := l.SetLimits(limit(t, text)); err != nil {
				t.Fatal(err)
			}
			changes++
		}
	}
	close(stop)
	wg.Wait()
	elapsed := time.Since(begun)
	most := 2*20 + 20*(elapsed.Milliseconds()+1)
	t.Logf("%d passed in %v through %d changes, %d may", passed.Load(), elapsed, changes, most)
	if passed.Load() > most || passed.Load() < 100 {
		t.Errorf("%d passed, %d may", passed.Load(), most)
	}
}

// TestFormsBeyondFour exhausts a limit, and asks under four others that hold less
// and take longer: the first, which no longer counts the key, is still exhausted
// when it is asked again, through a restart too, and for no longer than it was.
func TestFormsBeyondFour(t *testing.T) {
	var c clock
	c.advance(1000 * time.Hour)
	s := memstore.New(memstore.Options{Now: c.now})
	texts := []string{"10/h", "1/20h", "1/30h", "1/40h", "1/50h"}
	l := forms(t, s, texts...)
	taken(t, l[0], "a", 10)
	for i := range 40 {
		if d := taken(t, l[i%5], "a", 1); d.Allowed {
			t.Fatalf("%s lets pass one more", texts[i%5])
		}
	}
	s = restarted(t, s, memstore.Options{Now: c.now})
	l = forms(t, s, texts...)
	c.advance(time.Hour - 1)
	for _, i := range []int{4, 3, 2, 1} {
		taken(t, l[i], "a", 1)
	}
	if d, err := l[0].Peek(ctx, "a", 1); err != nil || d.Remaining != 0 {
		t.Errorf("a nanosecond before it ends: %+v, %v", d, err)
	}
	c.advance(1)
	if d := taken(t, l[0], "a", 1); !d.Allowed {
		t.Errorf("an hour later: %+v", d)
	}
}

// TestFormsBeyondFourRefunded gives back under a fifth form, which drops none of
// the others, and what is held of one that went.
func TestFormsBeyondFourRefunded(t *testing.T) {
	var c clock
	l := forms(t, memstore.New(memstore.Options{Now: c.now}), "10/h", "10/20h", "10/30h", "10/40h", "10/50h", "10/60h")
	taken(t, l[0], "a", 10)
	for _, one := range l[1:5] { // the first goes
		taken(t, one, "a", 1)
	}
	if _, err := l[5].Refund(ctx, "a", 4); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{1, 2, 3, 4, 0} {
		if d, err := l[i].Peek(ctx, "a", 1); err != nil || d.Remaining != 4 {
			t.Errorf("%v: %+v, %v", l[i].Limits(), d, err)
		}
	}
	c.advance(11 * time.Hour)
	if d, err := l[1].Peek(ctx, "a", 1); err != nil || d.Remaining != 9 { // it has counted all along
		t.Errorf("11 hours later: %+v, %v", d, err)
	}
	if err := l[5].Reset(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if d := taken(t, l[0], "a", 10); !d.Allowed {
		t.Errorf("after a reset: %+v", d)
	}
}

// TestFormsOfFlood has ever new keys use two forms of a full store one after the
// other: what is held of those that had to go is bounded as keys are.
func TestFormsOfFlood(t *testing.T) {
	var c clock
	c.advance(1000 * time.Hour)
	const keys = 512
	s := memstore.New(memstore.Options{Now: c.now, MaxKeys: keys})
	l := forms(t, s, "10/24h", "100/s")
	var first int64
	for round := range 60 {
		for _, one := range l {
			for k := range keys {
				taken(t, one, fmt.Sprint(round, " ", k), 1)
			}
		}
		c.advance(11 * time.Second)
		if round == 9 {
			first = s.Stats().Bytes
		}
	}
	if last := s.Stats().Bytes; last > 2*first {
		t.Errorf("%d bytes after 10 rounds of new keys, %d after 60", first, last)
	}
	c.advance(24 * time.Hour)
	for k := range keys / 4 { // normal use: each key has the whole of its own limit
		for i := range 11 {
			if d := taken(t, l[0], fmt.Sprint("later ", k), 1); d.Allowed != (i < 10) {
				t.Fatalf("later, key %d, request %d: %+v", k, i, d)
			}
		}
	}
}

// A binder binds forms while a snapshot is written.
type binder struct {
	bytes.Buffer
	bind func()
}

func (b *binder) Write(p []byte) (int, error) {
	if b.bind != nil {
		b.bind()
		b.bind = nil
	}
	return b.Buffer.Write(p)
}

// TestFormsBoundWhileSaved has a key meet four more forms while a snapshot is
// written that knows of one: it can be read.
func TestFormsBoundWhileSaved(t *testing.T) {
	var c clock
	c.advance(1000 * time.Hour)
	s := memstore.New(memstore.Options{Now: c.now})
	// Enough keys under the first name that they are written before the other's are copied.
	before := under(t, s, "a", limit(t, "10/24h"))
	for i := range 100_000 {
		taken(t, before, fmt.Sprint(i), 1)
	}
	one := under(t, s, "b", limit(t, "10/24h"))
	for i := range 1000 {
		taken(t, one, fmt.Sprint(i), 1)
	}
	file := &binder{bind: func() {
		for n := int64(11); n < 15; n++ {
			l := under(t, s, "b", limit(t, fmt.Sprint(n, "/24h")))
			for i := range 1000 {
				taken(t, l, fmt.Sprint(i), 1)
			}
		}
	}}
	if err := s.Save(file); err != nil {
		t.Fatal(err)
	}
	if err := memstore.New(memstore.Options{Now: c.now}).Load(&file.Buffer); err != nil {
		t.Error(err)
	}
}

// TestReservedUnderFormerForms settles far below what was reserved: the form in
// force counts what was settled, former ones what was reserved, and the next form
// starts with the greatest use.
func TestReservedUnderFormerForms(t *testing.T) {
	c := clock{}
	c.advance(24 * time.Hour)
	l := limiter(t, memstore.New(memstore.Options{Now: c.now}), "1000/24h fixed_window")
	for i, want := range []struct {
		change string
		left   int64
	}{{"1000/24h fixed_window", 950}, {"1100/24h fixed_window", 1000}, {"1200/24h fixed_window", 1200 - 50 - 400}} {
		if err := l.SetLimits(limit(t, want.change)); err != nil {
			t.Fatal(err)
		}
		if d, err := l.Peek(ctx, "k", 1); i == 2 && (err != nil || d.Remaining != want.left) {
			t.Errorf("%s starts with %+v, %v; want %d remaining", want.change, d, err, want.left)
		}
		for range 10 {
			_, r, err := l.Reserve(ctx, "k", 40, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Settle(ctx, 5); err != nil {
				t.Fatal(err)
			}
		}
		if d, err := l.Peek(ctx, "k", 1); i < 2 && (err != nil || d.Remaining != want.left) {
			t.Errorf("%s: %+v, %v; want %d remaining", want.change, d, err, want.left)
		}
	}
}
