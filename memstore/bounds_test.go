package memstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// TestMaxBytesOfManyLimits floods several limits of large states with new keys: each
// takes no more than its overflow cells beyond Options.MaxBytes.
func TestMaxBytesOfManyLimits(t *testing.T) {
	const most = 2 << 20
	for _, text := range []string{"10000/h sliding_buckets parts 600", "100/h sliding_log"} {
		for _, k := range []int{1, 4} {
			s := memstore.New(memstore.Options{MaxBytes: most})
			for i := range k {
				l := under(t, s, fmt.Sprint("limit", i), limit(t, text))
				for key := range 8000 {
					taken(t, l, fmt.Sprint(key), 1)
				}
			}
			cells := int64(k) * 1024 * 8 * (2 + 602/2)
			if st := s.Stats(); st.PagedBytes > most+64*8<<10+cells || st.Overflowed == 0 && strings.Contains(text, "buckets") {
				t.Errorf("%d × %s: %d bytes of pages, of which %d may be and %d more for cells; %d overflowed", k, text, st.PagedBytes, most, cells, st.Overflowed)
			}
		}
	}
}

// TestManyLimitsAllocateNothing takes under 1 to 64 limits in one decision, which passes,
// and which one of them denies.
func TestManyLimitsAllocateNothing(t *testing.T) {
	for _, n := range []int{1, 4, 5, 8, 9, 20, 64} {
		s := memstore.New(memstore.Options{})
		var list []stint.Limit
		for i := range n {
			list = append(list, stint.New(int64(1_000_000+i), time.Hour).WithName(fmt.Sprint("l", i)))
		}
		passes := under(t, s, "passes", list...)
		list[n-1] = limit(t, "1/24h burst 1")
		denies := under(t, s, "denies", list...)
		b := made.Bound(t, s, "layers", list[:max(n/2, 1)]...)
		layers := []stint.Layer{{Bound: b, Key: "a"}, {Bound: b, Key: "b"}}
		for what, do := range map[string]func(){
			"allow": func() { _, _ = passes.Allow(ctx, "a") },
			"take":  func() { _, _ = passes.Take(ctx, "a", 1) },
			"deny":  func() { _, _ = denies.Take(ctx, "a", 1) },
			"two":   func() { _, _ = s.Decide(context.Background(), meter.OpTake, layers, 1) },
		} {
			do()
			if got := testing.AllocsPerRun(200, do); got > 0 && !race.On {
				t.Errorf("%d limits, %s: %.1f allocations", n, what, got)
			}
		}
	}
}

// TestZeroStore says of a store that New has not made what would be right.
func TestZeroStore(t *testing.T) {
	var s memstore.Store
	_, err := stint.NewLimiter(&s, "api", stint.PerSecond(1))
	if err == nil || !strings.Contains(err.Error(), "memstore.New") {
		t.Errorf("NewLimiter: %v", err)
	}
	if err := s.Load(strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "memstore.New") {
		t.Errorf("Load: %v", err)
	}
	s.Stats()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestForgottenInTime fills a store of one key a nanosecond before that key is as if
// never seen: it is not forgotten then, and is at that moment.
func TestForgottenInTime(t *testing.T) {
	for _, text := range []string{"1/1h", "1/1h fixed_window", "1/1h sliding_log", "1/1h sliding_counter", "7/1h burst 1"} {
		s, c := storeAt(1000*time.Hour, memstore.Options{MaxKeys: 1})
		l := under(t, s, "api", limit(t, text))
		idle := taken(t, l, "a", 1).ResetAfter
		c.advance(idle - 1)
		taken(t, l, "b", 1)
		if taken(t, l, "a", 1).Allowed && text != "1/1h sliding_counter" || s.Stats().Evicted > 0 {
			t.Errorf("%s: forgotten a nanosecond early: %+v", text, s.Stats())
		}
		c.advance(1 + 2*time.Hour)
		if taken(t, l, "b", 1); s.Stats().Evicted == 0 {
			t.Errorf("%s: not forgotten later", text)
		}
	}
}
