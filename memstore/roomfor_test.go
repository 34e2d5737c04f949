package memstore_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/cputime"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// TestRoomForLimits has a client give a limit of its own for each request of one key. From
// some number on no other is added, those that are known decide as before, and the keys of
// another name have their places: each part of the store has three quarters of its room for
// them. Limits under which nothing counts any more leave room.
func TestRoomForLimits(t *testing.T) {
	const most = 250
	now := int64(time.Hour)
	s := memstore.New(memstore.Options{MaxKeys: 64 * 4 * most, Now: func() int64 { return now }})
	defer s.Close()
	added := 0
	give := func(seconds int) error {
		l := stint.New(1, time.Duration(seconds)*time.Second)
		if err := s.RoomFor("given", l); err != nil {
			return err
		}
		b := made.Bound(t, s, "given", l)
		added++
		_, err := b.Decide(t.Context(), meter.OpTake, "k", 1)
		return err
	}
	for i := range 5 * most {
		if err := give(3600 + i); err != nil && !errors.Is(err, stint.ErrFull) {
			t.Fatal(err)
		}
	}
	if err := give(3600); err != nil || added != most+1 {
		t.Errorf("%d limits, and of one of them: %v", added, err)
	}
	other := made.Bound(t, s, "other", stint.PerHour(1))
	for i := range 64 * most * 2 {
		if ok, err := other.Allow(t.Context(), string(rune(0x10000+i)), 1); !ok || err != nil {
			t.Fatalf("newcomer %d of another name: %v %v", i, ok, err)
		}
	}
	now += int64(2 * time.Hour)
	for i := 0; give(7200+i) != nil; i++ {
		if runtime.GC(); i == most {
			t.Fatal("no room, though nothing counts any more")
		}
	}
}

// TestRoomForTakesAsLong refuses limits of a name that has few, and of one that has sixteen times
// as many: that takes about as long, or who floods one name would hold up all others.
func TestRoomForTakesAsLong(t *testing.T) {
	work := func(most int) time.Duration {
		s := memstore.New(memstore.Options{MaxKeys: 64 * 4 * most})
		defer s.Close()
		var held []stint.Bound
		for i := range most {
			b := made.Bound(t, s, "given", stint.New(1, time.Duration(1+i)*time.Second))
			held = append(held, b)
		}
		before := cputime.Used(t)
		for range 4000 {
			if err := s.RoomFor("given", stint.New(1, 2*time.Hour)); !errors.Is(err, stint.ErrFull) {
				t.Fatal(err)
			}
		}
		runtime.KeepAlive(held)
		return cputime.Used(t) - before
	}
	if few, many := work(256), work(4096); many > 5*few {
		t.Errorf("of 256 limits 4,000 refusals take %v of a processor, of 4,096 %v", few, many)
	}
}

// TestNamesWithoutKeys binds equal limits under many names, as a configuration of many rules does:
// one that no key has used takes little.
func TestNamesWithoutKeys(t *testing.T) {
	const names, most = 5000, 1100
	s := memstore.New(memstore.Options{})
	defer s.Close()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what cleanups have let go of
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	held, before := make([]stint.Bound, names), heap()
	for i := range held {
		held[i], _ = s.Bind(fmt.Sprint("rule ", i), stint.PerHour(5))
	}
	if took := (heap() - before) / names; took > most {
		t.Errorf("%d bytes a name, want at most %d", took, most)
	}
	runtime.KeepAlive(held)
}
