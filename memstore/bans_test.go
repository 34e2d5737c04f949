package memstore_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// banned returns how long a take of 1 says that a key has to wait; 0 if it passes.
func banned(t testing.TB, l *stint.Limiter, key string) time.Duration {
	t.Helper()
	d, err := l.Take(ctx, key, 1)
	if err != nil || d.Allowed == (d.RetryAfter > 0) {
		t.Fatal(d, err)
	}
	return time.Duration(d.RetryAfter)
}

// ban uses the two units of a key up, and has it banned.
func ban(t testing.TB, l *stint.Limiter, key string) {
	t.Helper()
	for range 2 {
		if !allow(t, l, key) {
			t.Fatalf("%s is denied at first", key)
		}
	}
	banned(t, l, key)
}

// A ban ends at its nanosecond under every kind, also one that is much longer than what
// the state remembers.
func TestBanEnds(t *testing.T) {
	for _, text := range []string{"2/1s ban 1h", "2/7s ban 7ns", "2/1s token_bucket_interval ban 1h", "2/1s burst 1 leaky_queue ban 1h", "2/1s fixed_window ban 1h",
		"2/day in Europe/Paris ban 96h", "2/1s sliding_log ban 1h", "2/1s sliding_counter ban 1h", "2/1s sliding_buckets ban 1h", "5_000_000_000/1s sliding_buckets parts 3 ban 1h"} {
		t.Run(text, func(t *testing.T) {
			s, c := storeAt(1_000_000*time.Hour, memstore.Options{})
			l := limiter(t, s, text)
			of := l.Limits()[0]
			if d, err := l.Take(ctx, "a", of.Capacity()); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			first := banned(t, l, "a")
			for left := of.Ban(); left > 1; left -= left / 2 {
				if got := banned(t, l, "a"); got < left || got > max(left, first) {
					t.Fatalf("%v, and %v of the ban are left", got, left)
				}
				c.advance(left / 2)
			}
			if d, _ := l.Peek(ctx, "a", 1); d.Allowed {
				t.Error("passes a nanosecond early")
			}
			c.advance(1)
			if d, err := l.Peek(ctx, "a", 1); err != nil || !d.Allowed && time.Duration(d.RetryAfter) > first-of.Ban() {
				t.Errorf("when the ban has ended: %+v, %v", d, err)
			}
		})
	}
}

// TestBanRestarted carries bans over to another store by a snapshot, also to one whose
// clock is behind.
func TestBanRestarted(t *testing.T) {
	s, c := storeAt(1_000_000*time.Hour, memstore.Options{})
	ban(t, limiter(t, s, "2/1m ban 1h"), "a")
	ban(t, limiter(t, s, "2/1m ban 3h"), "b")
	c.advance(10 * time.Minute)
	file := saved(t, s)
	for _, behind := range []time.Duration{0, -time.Hour, time.Hour, 24 * time.Hour} {
		later := clock{}
		later.advance(time.Duration(c.now()) - behind)
		next := loaded(t, file.Bytes(), memstore.Options{Now: later.now})
		plain, l := limiter(t, next, "2/1m sliding_log"), limiter(t, next, "2/1m ban 1h")
		if banned(t, plain, "a") != 0 {
			t.Error("another limit has the ban")
		}
		for key, length := range map[string]time.Duration{"a": time.Hour, "b": 3 * time.Hour} {
			want := min(max(length-10*time.Minute+behind, 0), length)
			if d, err := l.Peek(ctx, key, 1); err != nil || time.Duration(d.RetryAfter) != want {
				t.Errorf("%s, with a clock that is %v behind: %+v, %v; %v of the ban are left", key, behind, d, err, want)
			}
		}
		if err := limiter(t, next, "2/1m").Reset(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if got := banned(t, l, "a"); got != 0 {
			t.Errorf("after a reset: %v", got)
		}
	}
}

// TestBanShared has limits of one identity share bans while each comes and goes.
func TestBanShared(t *testing.T) {
	s, c := storeAt(0, memstore.Options{})
	ban(t, limiter(t, s, "2/1m ban 10h"), "a")
	for i := range 5 {
		runtime.GC() // what is not held may be released
		s.Stats()
		c.advance(time.Hour)
		if d, err := limiter(t, s, "2/1m").Peek(ctx, "a", 1); err != nil || !d.Allowed {
			t.Fatalf("a limit without a ban: %+v, %v", d, err)
		}
		if got := banned(t, limiter(t, s, fmt.Sprintf("2/1m ban %dm", i+1)), "a"); got != time.Duration(9-i)*time.Hour {
			t.Fatalf("after %d hours: %v", i+1, got)
		}
	}
	c.advance(5*time.Hour + 20*time.Second)
	runtime.GC()
	if got := banned(t, limiter(t, s, "2/1m ban 10h"), "a"); got != 0 {
		t.Errorf("after the ban: %v", got)
	}
}

// TestBanReleased forgets bans and what has begun them.
func TestBanReleased(t *testing.T) {
	s, c := storeAt(0, memstore.Options{})
	for i := range 50 {
		ban(t, under(t, s, fmt.Sprint("name ", i), limit(t, "2/1s ban 1m")), "a")
	}
	if st := s.Stats(); st.Keys != 100 {
		t.Errorf("%d keys, want a state and a ban of each", st.Keys)
	}
	c.advance(time.Hour)
	released(t, s, 0)
}

// TestBanFull floods a store: a key for whose ban there is no room is denied by its limit
// alone, and no stranger who shares its cell is banned.
func TestBanFull(t *testing.T) {
	s, c := storeAt(0, memstore.Options{MaxKeys: 64})
	l := limiter(t, s, "2/1m ban 1h")
	ban(t, l, "in time")
	for i := range 5000 {
		banned(t, l, fmt.Sprint("flood ", i))
	}
	c.advance(2 * time.Minute)
	if got := banned(t, l, "in time"); got != 58*time.Minute {
		t.Errorf("the first: %v", got)
	}
	passed := 0
	for i := range 1000 {
		if banned(t, l, fmt.Sprint("stranger ", i)) == 0 {
			passed++
		}
	}
	if st := s.Stats(); passed == 0 || st.Keys > st.MaxKeys {
		t.Errorf("%d strangers pass, %+v", passed, st)
	}
}

// TestBanBatch asks for several keys at once.
func TestBanBatch(t *testing.T) {
	s, c := storeAt(0, memstore.Options{})
	l := limiter(t, s, "2/1m ban 1h")
	ban(t, l, "a")
	c.advance(10 * time.Minute)
	passed := make([]bool, 3)
	if err := l.AllowEach(ctx, []string{"a", "b", "a"}, 1, passed); err != nil || passed[0] || !passed[1] || passed[2] {
		t.Error(passed, err)
	}
}

// TestBanSingle is a limit without keys, which comes by a ban and loses it.
func TestBanSingle(t *testing.T) {
	s, c := singleAt(t, 0, "2/1m")
	passes := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			if got := s.Allow(); got != w {
				t.Fatalf("request %d: %v", i, got)
			}
		}
	}
	passes(true, true, false, false)
	if err := s.SetLimit(limit(t, "2/1m ban 1h")); err != nil {
		t.Fatal(err)
	}
	passes(false)
	c.advance(time.Hour - 1)
	passes(false)
	c.advance(1)
	passes(true, true, false)
	if err := s.SetLimit(limit(t, "2/1m")); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Minute)
	passes(true, true, false)
}

// TestBanWaits lets those who wait begin when the ban has ended: a reset ends it too.
func TestBanWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memstore.New(memstore.Options{}), "2/1m ban 1h")
		ban(t, l, "a")
		begun := time.Now()
		if err := l.Wait(ctx, "a", 1); err != nil || time.Since(begun) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		allow(t, l, "a")
		banned(t, l, "a")
		time.AfterFunc(time.Minute, func() { _ = l.Reset(ctx, "a") })
		begun = time.Now()
		if err := l.Wait(ctx, "a", 1); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// A decision under a limit with a ban allocates nothing.
func TestBanAllocates(t *testing.T) {
	s := memstore.New(memstore.Options{})
	l := limiter(t, s, "2/1m ban 1h")
	ban(t, l, "a")
	if n := testing.AllocsPerRun(100, func() { _, _ = l.Take(ctx, "a", 1) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestBlockRestarted carries blocks over to another store by a snapshot, each to its end.
func TestBlockRestarted(t *testing.T) {
	s, c := storeAt(1_000_000*time.Hour, memstore.Options{})
	l := limiter(t, s, "2/1m ban 1s")
	lengths := map[string]time.Duration{"a": 1, "b": time.Second, "c": time.Hour + 1, "d": meter.MaxBan}
	for key, d := range lengths {
		if err := l.Block(ctx, key, d); err != nil {
			t.Fatal(err)
		}
	}
	l = limiter(t, loaded(t, saved(t, s).Bytes(), memstore.Options{Now: c.now}), "2/1m ban 1s")
	for key, d := range lengths {
		if got := banned(t, l, key); got != d {
			t.Errorf("%s is blocked for %v, want %v", key, got, d)
		}
	}
	if err := l.Unblock(ctx, "d"); err != nil || banned(t, l, "d") != 0 {
		t.Error("unblocked", err)
	}
}

// TestBlockReleased blocks for many different times: what the store keeps of them does not
// grow with their number, and is forgotten when the last has ended.
func TestBlockReleased(t *testing.T) {
	s, c := storeAt(0, memstore.Options{})
	l := limiter(t, s, "2/1m ban 1s")
	for i := range 10_000 {
		if err := l.Block(ctx, fmt.Sprint(i%100), time.Duration(i)*time.Minute+1); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); st.Keys != 100 || memstore.KnownLimits(s) > 20 {
		t.Errorf("%d keys and %d limits", st.Keys, memstore.KnownLimits(s))
	}
	for _, d := range []time.Duration{9999*time.Minute + 1, time.Minute} {
		if got := banned(t, l, "99"); got != d {
			t.Errorf("%v are left, want %v", got, d)
		}
		c.advance(9998*time.Minute + 1)
	}
	c.advance(time.Hour)
	released(t, s, 2)
	runtime.KeepAlive(l)
}

// TestBlockFull: a full store says so, and a key that it knows can be blocked still.
func TestBlockFull(t *testing.T) {
	s, _ := storeAt(0, memstore.Options{MaxKeys: 64})
	l := limiter(t, s, "2/1m ban 1h")
	if err := l.Block(ctx, "in time", time.Minute); err != nil {
		t.Fatal(err)
	}
	full := 0
	for i := range 5000 {
		if err := l.Block(ctx, fmt.Sprint("flood ", i), time.Hour); errors.Is(err, stint.ErrFull) {
			full++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Block(ctx, "in time", 2*time.Hour); err != nil || banned(t, l, "in time") != 2*time.Hour {
		t.Error("a key that has a place", err)
	}
	if st := s.Stats(); full < 5000-64 || st.Keys > st.MaxKeys {
		t.Errorf("%d found no place: %+v", full, st)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Block(ctx, "in time", time.Hour); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
