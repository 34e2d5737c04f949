package proof_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// once is a store with a limit of one unit a key, on a clock at the caller's
// hand.
func once(t *testing.T, text string, o memstore.Options, now *int64) *stint.Limiter {
	t.Helper()
	o.Now = func() int64 { return *now }
	return made.Limiter(t, memstore.New(o), "test", parse(t, text))
}

func allows(t *testing.T, l *stint.Limiter, key string) bool {
	t.Helper()
	ok, err := l.Allow(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// TestKeysAreApart gives a unit to each of many keys, and to keys that differ
// in one byte somewhere: a hash of 32 bits, or one that skips a byte, would
// deny some of them.
func TestKeysAreApart(t *testing.T) {
	now := int64(1e18)
	many := once(t, "every 1h", memstore.Options{}, &now)
	for i := range 300_000 {
		if key := fmt.Sprint(i); !allows(t, many, key) {
			t.Fatalf("key %s meets one before it", key)
		}
	}
	few := once(t, "every 1h", memstore.Options{}, &now)
	for length := range 70 {
		plain := strings.Repeat("a", length)
		if !allows(t, few, plain) {
			t.Errorf("%d bytes meet a shorter key", length)
		}
		for i := range length {
			if !allows(t, few, plain[:i]+"b"+plain[i+1:]) {
				t.Errorf("%d bytes: byte %d does not count", length, i)
			}
		}
	}
}

// TestEvictionIsExact fills a store for one key and lets another come a
// nanosecond before the first is as if never seen, and right then. The first
// must be answered as if the other had never come.
func TestEvictionIsExact(t *testing.T) {
	for _, text := range everyKind {
		now := int64(1_763_675_900_000_000_123)
		l := once(t, text, memstore.Options{MaxKeys: 1}, &now)
		m, err := parse(t, text).Meter()
		if err != nil {
			t.Fatal(err)
		}
		twin := newBare(m)
		look := func(what string) {
			got, err := l.Peek(t.Context(), "first", 1)
			if err != nil {
				t.Fatal(err)
			}
			if want := m.Answer(twin.words, now, 1, m.Admits(twin.words, now, 1)); got.Remaining != want.Remaining || got.ResetAfter != want.ResetAfter {
				t.Errorf("%s, %s: %+v, want %+v", text, what, got, want)
			}
		}
		for _, before := range []time.Duration{1, 0} {
			d, err := l.Take(t.Context(), "first", l.Limits()[0].Capacity())
			if want := twin.take(now, l.Limits()[0].Capacity()); err != nil || d != want {
				t.Fatalf("%s: %+v, want %+v; %v", text, d, want, err)
			}
			start := now
			now = start + int64(d.ResetAfter-before)
			allows(t, l, "second")
			look(fmt.Sprint("another came ", before, " before it was full"))
			now = start + int64(d.ResetAfter) + int64(10*parse(t, text).Period())
		}
	}
}
