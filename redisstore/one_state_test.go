package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// underOne binds a limit under one name.
func underOne(t testing.TB, s stint.Store, text string) stint.Bound {
	t.Helper()
	return underOneName(t, s, "api", text)
}

func underOneName(t testing.TB, s stint.Store, name, text string) stint.Bound {
	t.Helper()
	b := made.Bound(t, s, name, parse(t, text))
	return b
}

// TestNumbersInForce looks at what a state says while limits of one identity are asked
// in turn.
func TestNumbersInForce(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_040_000_000_000)
	o := redisstore.Options{Prefix: "numbers", Now: func() int64 { return now }}
	s := open(t, server.URL(), o)
	ten, three, seven := underOne(t, s, "10/1m"), underOne(t, s, "3/1m"), underOne(t, s, "7/1m burst 20")
	key := redisstore.StateOf(o, "key", ten)
	in := func(what, head string, used int64) {
		t.Helper()
		state := get(t, server, key)
		if !strings.HasPrefix(state, head) {
			t.Errorf("%s: the state is %q, want %s", what, state, head)
		}
		if d, err := seven.Decide(ctx, meter.OpPeek, "key", 1); err != nil || 20-d.Remaining != used {
			t.Errorf("%s: %d of 20 left, want %d used: %v", what, d.Remaining, used, err)
		}
		if after := get(t, server, key); after != state {
			t.Errorf("%s: a peek made %q of %q", what, after, state)
		}
	}
	take(t, ten, "key", 5)
	in("five of ten", "=g6000000:1:10:", 5)
	take(t, three, "key", 1)
	in("more in use than three", "=g6000000:1:10:", 5)
	if d := take(t, seven, "key", 16); d.Allowed {
		t.Errorf("%+v", d)
	}
	in("a denial puts numbers in force", "=g60000000:7:20:", 5)
	layers := []stint.Layer{{Bound: ten, Key: "key"}}
	if _, err := s.Refund(ctx, layers, 1); err != nil {
		t.Fatal(err)
	}
	in("a refund does not", "=g60000000:7:20:", 4)
	_, id, err := s.Reserve(ctx, []stint.Layer{{Bound: seven, Key: "key"}}, 4, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	in("reserved", "=g60000000:7:20:", 8)
	take(t, ten, "key", 1)
	in("put in force by ten", "=g6000000:1:10:", 9)
	if _, err := s.Settle(ctx, id, 0); err != nil {
		t.Fatal(err)
	}
	in("what was reserved before gives nothing back", "=g6000000:1:10:", 9)
	if _, err := s.Refund(ctx, layers, 6); err != nil {
		t.Fatal(err)
	}
	_, id, err = s.Reserve(ctx, layers, 1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	take(t, seven, "key", 1)
	if _, err := s.Settle(ctx, id, 3); err != nil {
		t.Fatal(err)
	}
	in("what it settles above is charged under the numbers of the state", "=g60000000:7:20:", 7)
}

// TestNumbersRounded has a bucket of which a fraction is in use get other numbers: the
// fraction is rounded up to the least part of a microsecond that these can hold.
func TestNumbersRounded(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_040_000_000_000)
	s := open(t, server.URL(), redisstore.Options{Prefix: "rounded", Now: func() int64 { return now }})
	take(t, underOne(t, s, "10/1m"), "key", 1)
	now += int64(time.Microsecond) // 5,999,999 of the 6,000,000 µs of a unit are left
	d := take(t, underOne(t, s, "3/1m"), "key", 3)
	if want := 19_999_997 * time.Microsecond; d.Allowed || d.ResetAfter != want {
		t.Errorf("reset after %v, want %v", d.ResetAfter, want)
	}
	for range 1000 { // in turns, at one moment
		take(t, underOne(t, s, "10/1m"), "key", 10)
		d = take(t, underOne(t, s, "3/1m"), "key", 3)
	}
	if most := 20_006 * time.Millisecond; d.ResetAfter < 19_999_997*time.Microsecond || d.ResetAfter > most {
		t.Errorf("reset after %v once in turns", d.ResetAfter)
	}
}

// TestNumbersBeyondDoubles looks at a bucket by a capacity that is no double times the time
// of its unit: a fraction of a unit that is in use counts as one.
func TestNumbersBeyondDoubles(t *testing.T) {
	now := int64(1_790_000_040_000_000_000)
	s := open(t, redistest.Start(t).URL(), redisstore.Options{Prefix: "doubles", Now: func() int64 { return now }})
	take(t, underOne(t, s, "21/24h"), "key", 1)
	now += 4114_285_714_000 // 2/7 µs of the unit are left
	large := underOne(t, s, "1000000/24h")
	if d, err := large.Decide(ctx, meter.OpPeek, "key", 1_000_000); err != nil || d.Allowed || d.Remaining != 999_999 {
		t.Errorf("looked at: %+v, %v", d, err)
	}
	if d := take(t, large, "key", 1_000_000); d.Allowed {
		t.Errorf("taken: %+v", d)
	}
}
