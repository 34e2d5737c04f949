package memstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// seal returns the bytes as a snapshot whose head and checksum are right, so that a
// fuzzer gets to what lies between.
func seal(body []byte) []byte {
	data := append([]byte("stintsnp"), 1, 0, 0, 0)
	data = append(data, body...)
	return binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

// fuzzLimits are the limits that the seeds hold keys of, of every kind.
var fuzzLimits = append([]string{"3/day in Europe/Paris", "7/1m", "3/s sliding_log count_denied", "3000000000/s sliding_buckets parts 3", "2/7m ban 1h"}, everyKind...)

// snapshotOf returns a snapshot, without its head and checksum, of keys under
// limits, some of them reserved.
func snapshotOf(f testing.TB, limits ...string) []byte {
	f.Helper()
	c := &clock{}
	c.ns.Store(1e18)
	s := memstore.New(memstore.Options{MaxKeys: 24, Now: c.now}) // some on cells
	for _, text := range limits {
		l := limiter(f, s, text)
		for i, key := range []string{"a", "a", "b"} {
			c.advance(1e6)
			if _, err := l.Take(ctx, key, int64(1+i/2)); err != nil {
				f.Fatal(err)
			}
		}
		for _, key := range []string{"a", "b", "c", "d"} { // those that pass
			if _, _, err := l.Reserve(ctx, key, 1, time.Hour); err != nil {
				f.Fatal(err)
			}
		}
	}
	out := saved(f, s)
	return out.Bytes()[12 : out.Len()-4]
}

// load loads a snapshot into a store of its own, and holds that it takes no
// more memory than its length explains.
func load(t *testing.T, data []byte) (*memstore.Store, error) {
	t.Helper()
	c := &clock{}
	c.ns.Store(1e18)
	s := memstore.New(memstore.Options{MaxKeys: 64, MaxBytes: 1 << 20, Now: c.now})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := s.Load(bytes.NewReader(data))
	runtime.ReadMemStats(&after)
	// A calendar's zone is read for each limit that has one: some 20 kB for 30 bytes.
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+1000*len(data)); got > most {
		t.Errorf("%d bytes for a snapshot of %d", got, len(data))
	}
	return s, err
}

// use binds the limits and works with keys, old ones and new ones.
func use(t *testing.T, s *memstore.Store) {
	t.Helper()
	for _, text := range fuzzLimits {
		bound, err := s.Bind(text, limit(t, text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, key := range []string{"a", "b", "c"} {
			for _, op := range []meter.Op{meter.OpPeek, meter.OpTake, meter.OpTakeUpTo, meter.OpPeek} {
				d, err := bound.Decide(ctx, op, key, 2)
				if err != nil || d.Remaining < 0 || d.Remaining > d.Limit || d.ResetAfter < 0 || d.RetryAfter < stint.Never {
					t.Fatalf("%s: %+v, %v", text, d, err)
				}
			}
			if _, err := s.Refund(ctx, []stint.Layer{{Bound: bound, Key: key}}, 1); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	again := saved(t, s)
	if err := memstore.New(memstore.Options{}).Load(again); err != nil {
		t.Errorf("what was loaded is saved and does not load: %v", err)
	}
}

// FuzzSnapshot holds that no bytes make Load panic or take absurd memory, that
// a refused snapshot leaves a store that works, that one that loads can be
// used, and that the same with one byte changed is refused. The seeds are under
// testdata, and snapshots.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(nil), false, uint32(0))
	f.Add(snapshotOf(f, fuzzLimits...), true, uint32(99))
	for i, text := range fuzzLimits {
		f.Add(snapshotOf(f, text), true, uint32(i*7))
	}
	f.Fuzz(func(t *testing.T, data []byte, sealed bool, flip uint32) {
		if sealed {
			data = seal(data)
		}
		s, err := load(t, data)
		use(t, s)
		if err != nil {
			if !errors.Is(err, memstore.ErrSnapshot) && len(data) < 64*16 { // else it may hold too many keys
				t.Errorf("%v is no ErrSnapshot", err)
			}
			return
		}
		torn := bytes.Clone(data)
		torn[int(flip>>8)%len(torn)] ^= byte(flip) | 1
		s, err = load(t, torn)
		if !errors.Is(err, memstore.ErrSnapshot) {
			t.Errorf("with byte %d changed: %v", int(flip>>8)%len(torn), err)
		}
		use(t, s)
	})
}
