package memstore_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/memstore"
)

// TestRecovers floods every bound on keys and on bytes, waits until nothing of
// the flood counts any more and for a linger, and uses the store as usual: no
// newcomer is denied, shares a cell, or finds its log merged.
func TestRecovers(t *testing.T) {
	const mib = 1 << 20
	for i, c := range []struct {
		what         string
		limit, later string // another limit, of other states, if not empty
		options      memstore.Options
		flood        int   // keys
		cost         int64 // of each of 10 requests of a key of the flood
		quiet        time.Duration
		newcomers    int
	}{
		{"keys of a bucket", "10/1m", "", memstore.Options{MaxKeys: 4000}, 8000, 1, time.Minute, 3000},
		{"keys of a bucket, then of parts", "10/1m", "10/1m sliding_buckets", memstore.Options{MaxKeys: 4000}, 8000, 1, time.Minute, 3000},
		{"keys of parts", "10/1m sliding_buckets", "", memstore.Options{MaxKeys: 4000}, 8000, 1, 2 * time.Minute, 3000},
		{"keys of parts, then of a bucket", "10/1m sliding_buckets", "10/1m", memstore.Options{MaxKeys: 4000}, 8000, 1, 2 * time.Minute, 3000},
		{"bytes of parts", "100/1m sliding_buckets", "", memstore.Options{MaxBytes: 2 * mib}, 15_000, 1, 30 * 24 * time.Hour, 3000},
		{"bytes of parts, then of larger ones", "100/1m sliding_buckets", "100/1m sliding_buckets parts 600", memstore.Options{MaxBytes: 8 * mib}, 50_000, 1, 2 * time.Minute, 1500},
		{"bytes of many parts", "10_000/1h sliding_buckets parts 3600", "", memstore.Options{MaxBytes: 32 * mib}, 4_000, 1, 7 * 24 * time.Hour, 600},
		{"bytes of logs", "100/1h sliding_log", "", memstore.Options{MaxBytes: 2 * mib}, 20_000, 1, time.Hour, 3000},
		{"bytes of full logs", "100/1h sliding_log", "", memstore.Options{MaxBytes: mib}, 5_000, 10, time.Hour, 3000},
		{"bytes of logs, then of parts", "100/1h sliding_log", "100/1m sliding_buckets parts 600", memstore.Options{MaxBytes: 4 * mib}, 40_000, 1, time.Hour, 600},
		{"bytes of logs that count what they deny", "10/1h sliding_log count_denied", "", memstore.Options{MaxBytes: mib}, 15_000, 1, time.Hour, 3000},
		{"bytes in one shard", "100/1h sliding_log", "", memstore.Options{MaxKeys: 400, MaxBytes: 1 << 16}, 2_000, 1, time.Hour, 100},
	} {
		if leftOut(i) {
			continue
		}
		t.Run(c.what, func(t *testing.T) {
			s, clock := storeAt(1_000_000*time.Hour, c.options)
			flooded := limiter(t, s, c.limit)
			later := flooded
			if c.later != "" {
				later = limiter(t, s, c.later)
			}
			for i := range c.flood {
				for range 10 {
					clock.advance(time.Microsecond)
					taken(t, flooded, fmt.Sprint("flood", i), c.cost)
				}
			}
			full := s.Stats()
			if full.FullKeys+full.FullBytes == 0 {
				t.Fatalf("the flood filled nothing: %+v", full)
			}
			clock.advance(c.quiet + 10*time.Second)
			denied := 0
			for i := range c.newcomers {
				for range 5 {
					clock.advance(time.Microsecond)
					if !taken(t, later, fmt.Sprint("new", i), 2).Allowed {
						denied++
					}
				}
			}
			st := s.Stats()
			if denied > 0 || st.Overflowed != full.Overflowed || st.Merged != full.Merged || st.FullKeys != full.FullKeys || st.FullBytes != full.FullBytes {
				t.Errorf("%d of normal use denied\nfull:  %+v\nlater: %+v", denied, full, st)
			}
		})
	}
}

// TestRecoversAround floods a store in which some keys are in use all the
// time: they pin no more than they need, and newcomers find room, but for a few
// that meet in a shard while it is searched.
func TestRecoversAround(t *testing.T) {
	for i, text := range []string{"100/1m sliding_log", "100/1m sliding_buckets"} {
		if leftOut(i) {
			continue
		}
		t.Run(text, func(t *testing.T) {
			s, clock := storeAt(1_000_000*time.Hour, memstore.Options{MaxBytes: 4 << 20})
			l, other := limiter(t, s, text), limiter(t, s, "100/1m sliding_buckets parts 600")
			established := 0
			use := func(n int) {
				for i := range established {
					taken(t, l, fmt.Sprint("established", i), int64(n))
				}
			}
			for i := range 20_000 {
				if i%20 == 0 {
					established++ // one in twenty, among the others
				}
				if i%200 == 0 {
					use(1)
				}
				clock.advance(time.Millisecond)
				for range 1 + i%7 {
					clock.advance(time.Microsecond)
					taken(t, l, fmt.Sprint("flood", i), 1)
				}
			}
			full := s.Stats()
			for range 14 {
				clock.advance(10 * time.Second)
				use(2)
			}
			little := s.Stats()
			denied := 0
			for i := range 450 {
				if !taken(t, other, fmt.Sprint("new", i), 60).Allowed {
					denied++
				}
			}
			if st := s.Stats(); full.FullBytes == 0 || denied > 6 || st.Overflowed > little.Overflowed+10 {
				t.Errorf("%d denied\nfull:  %+v\nthen:  %+v\nlater: %+v", denied, full, little, st)
			}
		})
	}
}

// TestLogsShrink lets keys fill their logs and then use them little, without a
// pause: what they do not need any more is there for others.
func TestLogsShrink(t *testing.T) {
	s, clock := storeAt(1_000_000*time.Hour, memstore.Options{MaxBytes: 1 << 20})
	l := limiter(t, s, "1000/1m sliding_log")
	for range 500 {
		clock.advance(100 * time.Millisecond)
		for i := range 300 {
			taken(t, l, fmt.Sprint("busy", i), 1)
		}
	}
	full := s.Stats()
	for range 8 {
		clock.advance(10 * time.Second)
		for i := range 300 {
			taken(t, l, fmt.Sprint("busy", i), 1)
		}
	}
	little := s.Stats()
	denied := 0
	for i := range 1_000 {
		for range 4 {
			clock.advance(time.Microsecond)
			if !taken(t, l, fmt.Sprint("new", i), 250).Allowed {
				denied++
			}
		}
	}
	if st := s.Stats(); full.FullBytes == 0 || full.Merged == 0 || denied > 0 || st.Overflowed != full.Overflowed || st.Merged != little.Merged {
		t.Errorf("%d denied\nfull:  %+v\nlater: %+v", denied, full, st)
	}
}

// TestRecoversManyLimits finds idle keys in a full store as fast under 2,000
// limits as under one.
func TestRecoversManyLimits(t *testing.T) {
	for i, limits := range []int{1, 2000} {
		if leftOut(i) {
			continue
		}
		s, clock := storeAt(1_000_000*time.Hour, memstore.Options{MaxKeys: 20_000})
		var all []*stint.Limiter
		for i := range limits {
			l := under(t, s, fmt.Sprint("limit ", i), limit(t, "1/1m"))
			all = append(all, l)
		}
		for i := range 30_000 {
			allow(t, all[i%limits], fmt.Sprint("old", i))
		}
		full := s.Stats()
		clock.advance(time.Minute)
		denied := 0
		for i := range 3500 {
			if !allow(t, all[0], fmt.Sprint("new", i)) {
				denied++
			}
		}
		if st := s.Stats(); full.FullKeys == 0 || denied > 0 || st.Overflowed != full.Overflowed {
			t.Errorf("%d limits: %d denied\nfull:  %+v\nlater: %+v", limits, denied, full, st)
		}
	}
}

// TestRecoversReservations opens as many reservations as may be and abandons
// them: after their time to live others are made as before.
func TestRecoversReservations(t *testing.T) {
	s, clock := storeAt(1_000_000*time.Hour, memstore.Options{MaxReservations: 100})
	l := limiter(t, s, "10/1m")
	refused := 0
	for i := range 300 {
		if _, _, err := l.Reserve(ctx, fmt.Sprint("flood", i), 1, time.Minute); errors.Is(err, stint.ErrFull) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	full := s.Stats()
	if refused != 200 || full.FullReservations != 200 || full.Reservations != 100 {
		t.Fatalf("%d refused, %+v", refused, full)
	}
	if d, err := l.Peek(ctx, "flood250", 1); err != nil || d.Remaining != 10 {
		t.Errorf("what was refused was charged: %+v, %v", d, err)
	}
	clock.advance(time.Minute + 10*time.Second)
	for i := range 100 {
		if _, _, err := l.Reserve(ctx, fmt.Sprint("new", i), 1, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); st.FullReservations != 200 || st.Reservations != 100 {
		t.Errorf("%+v", st)
	}
}

// released collects garbage until a store knows no more than the given number of
// limits.
func released(t *testing.T, s *memstore.Store, limits int) {
	t.Helper()
	for s.Stats().Limits > limits {
		if t.Context().Err() != nil {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	if n := s.Stats().Limits; n != limits {
		t.Errorf("%d limits, want %d", n, limits)
	}
}

func TestRelease(t *testing.T) {
	s, clock := storeAt(1_000_000*time.Hour, memstore.Options{})
	bind := func(i int) *stint.Limiter {
		l := under(t, s, fmt.Sprint("tenant ", i), limit(t, "2/1h"))
		return l
	}
	const tenants = 500
	held := bind(0)
	for i := range tenants {
		allow(t, bind(i), "key")
	}
	allow(t, held, "key")
	runtime.GC()
	runtime.GC()
	if n := s.Stats().Limits; n != tenants {
		t.Fatalf("%d limits, want %d: their keys still count", n, tenants)
	}
	if l := bind(7); !allow(t, l, "key") || allow(t, l, "key") {
		t.Error("a limit that somebody binds again goes on where it was")
	}
	_, token, err := bind(8).Reserve(ctx, "other", 1, 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	clock.advance(time.Hour + 30*time.Minute) // key 7 as well as all others is idle
	released(t, s, 2)
	if d, err := token.Settle(ctx, 3); err != nil || d.Remaining != 0 {
		t.Errorf("settled: %+v, %v", d, err)
	}
	if d, _ := bind(8).Peek(ctx, "other", 1); d.Remaining != 0 {
		t.Errorf("%d remain: the charge of a settlement went to a limit that is gone", d.Remaining)
	}
	clock.advance(3 * time.Hour)
	if !allow(t, held, "key") || !allow(t, bind(9), "key") {
		t.Error("denied, though everything has been forgiven")
	}
	clock.advance(3 * time.Hour)
	_, _, _ = held.Reserve(ctx, "key", 1, time.Second) // makes the store see what has expired
	clock.advance(3 * time.Hour)
	_, _, _ = held.Reserve(ctx, "key", 1, time.Second)
	released(t, s, 1)
	runtime.KeepAlive(held)
}

// TestReleaseByBind binds limit after limit, each for a moment: those that are
// not needed go on the way, without a look at Stats.
func TestReleaseByBind(t *testing.T) {
	s, clock := storeAt(1_000_000*time.Hour, memstore.Options{})
	for i := range 20_000 {
		l := under(t, s, fmt.Sprint("tenant ", i), limit(t, "1/1s"))
		allow(t, l, "key")
		clock.advance(time.Second)
		if i%500 == 0 {
			runtime.GC()
		}
	}
	if n := memstore.KnownLimits(s); n > 10_000 {
		t.Errorf("%d limits are known", n)
	}
}

// TestBytes holds Stats.Bytes to what the heap says, of many limits and of
// many keys.
func TestBytes(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		for range 5 { // what a cleanup holds goes once that has run
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for i, c := range []struct {
		text         string
		limits, keys int
	}{{"10/1h sliding_log", 100, 500}, {"10/1h", 20_000, 1}, {"10/1h", 1, 200_000}, {"10/1h", 1000, 100}, {"10/1h sliding_buckets", 10, 5000}} {
		if leftOut(i) {
			continue
		}
		t.Run(fmt.Sprint(c.limits, c.text), func(t *testing.T) {
			l := limit(t, c.text)
			names := make([]string, c.limits)
			for i := range names {
				names[i] = fmt.Sprint("tenant ", i)
			}
			held := make([]*stint.Limiter, c.limits)
			before := heap()
			s := memstore.New(memstore.Options{Now: new(clock).now})
			for i := range held {
				held[i] = under(t, s, names[i], l)
				for k := range c.keys {
					allow(t, held[i], fmt.Sprint(k))
				}
			}
			took, reported := heap()-before, uint64(s.Stats().Bytes)
			// a limiter and what holds its limit are the caller's: some 400 bytes
			if least := took - min(took, uint64(500*c.limits)+1<<18); reported > took+took/20+1<<16 || reported < least*9/10 {
				t.Errorf("%d bytes on the heap, %d reported", took, reported)
			}
			t.Logf("%d bytes on the heap, %d reported", took, reported)
			runtime.KeepAlive(held)
		})
	}
}

// TestBoundsInUse fills every bound from many goroutines while limits come, go
// and change their kind, snapshots are written and the clock moves on: nothing
// panics, nothing stops, and afterwards the store is as a new one.
func TestBoundsInUse(t *testing.T) {
	s, clock := storeAt(1_000_000*time.Hour, memstore.Options{MaxKeys: 1500, MaxBytes: 1 << 13, MaxReservations: 50})
	rounds := 60
	if race.On || testing.Short() {
		rounds = 8 // so that each saves once
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 9))
			for i := range rounds {
				text := everyKind[rnd.IntN(len(everyKind))]
				a, err := stint.NewLimiter(s, fmt.Sprint("limit ", rnd.IntN(20)), limit(t, text).WithName("calls"))
				b, err2 := stint.NewLimiter(s, "two", limit(t, "5/1m").WithName("b"), limit(t, everyKind[i%4]).WithName("c"))
				if err != nil || err2 != nil {
					t.Error(err, err2)
					return
				}
				for range 40 {
					clock.advance(time.Duration(rnd.IntN(int(time.Second))))
					key := fmt.Sprint(rnd.IntN(3000))
					for _, l := range []*stint.Limiter{a, b} {
						_, e1 := l.Take(ctx, key, 1+rnd.Int64N(2))
						_, e2 := l.Peek(ctx, key, 1)
						_, token, e3 := l.Reserve(ctx, key, 1, time.Minute)
						if e3 == nil && token != nil && rnd.IntN(2) == 0 {
							_, e3 = token.Settle(ctx, rnd.Int64N(3))
						}
						if e1 != nil || e2 != nil || e3 != nil && !errors.Is(e3, stint.ErrFull) && !errors.Is(e3, stint.ErrReservation) {
							t.Error(e1, e2, e3)
							return
						}
					}
				}
				if i%20 == g {
					if err := s.Save(io.Discard); err != nil {
						t.Error(err)
					}
					runtime.GC()
				}
			}
		})
	}
	wg.Wait()
	if st := s.Stats(); st.FullKeys == 0 || st.FullBytes == 0 || st.FullReservations == 0 {
		t.Errorf("a bound was not reached: %+v", st)
	}
	clock.advance(62 * 24 * time.Hour)
	if _, _, err := limiter(t, s, "1/1s").Reserve(ctx, "last", 1, time.Second); err != nil {
		t.Error(err)
	}
	clock.advance(time.Hour)
	if _, _, err := limiter(t, s, "1/1s").Reserve(ctx, "last", 1, time.Second); err != nil {
		t.Error(err)
	}
	released(t, s, 1)
	if st := s.Stats(); st.Keys > 1 || st.PagedBytes > 0 || st.Bytes > 1<<16 {
		t.Errorf("left over: %+v", st)
	}
}

// TestSingleRecoversReservations opens as many reservations of a Single as may be:
// what is settled makes room at once, and what is abandoned once its time is over.
func TestSingleRecoversReservations(t *testing.T) {
	const most = 65_536
	s, clock := singleAt(t, 1_000_000*time.Hour, "1_000_000/s")
	reserve := func() *stint.Reservation {
		t.Helper()
		_, r, err := s.Reserve(1, time.Hour)
		if err != nil || r == nil {
			t.Fatalf("%v, %v", r, err)
		}
		return r
	}
	settle := func(r *stint.Reservation) {
		t.Helper()
		if _, err := r.Settle(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	open := make([]*stint.Reservation, most)
	for i := range open {
		open[i] = reserve()
	}
	if _, _, err := s.Reserve(1, time.Hour); !errors.Is(err, stint.ErrFull) {
		t.Fatalf("one more: %v", err)
	}
	for range 2 { // within the hour of the first ones
		for i := range open {
			settle(open[i])
			open[i] = reserve()
		}
	}
	settle(open[0])
	settle(open[0]) // is remembered
	clock.advance(time.Hour)
	for range most {
		reserve()
	}
}
