package library

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// keyed measures the public Limiter beside the libraries, on a thousand keys,
// which caches hold, and on a million in random order, which they do not.
func (f *figures) keyed() error {
	for _, n := range []int{1000, f.scaled(1_000_000)} {
		fmt.Fprintf(f.Out, "\n%d keys, uniform, in random order.\n", n)
		rs, err := f.keys(n)
		if err != nil {
			return err
		}
		f.speeds(rs, stintAllow)
		f.keyedChecks(rs, n)
	}
	return nil
}

// scaled returns a size, or a small part of it in a quick run.
func (f *figures) scaled(n int) int {
	if f.Short {
		return max(n/100, 1000)
	}
	return n
}

// keys races all contenders on n keys.
func (f *figures) keys(n int) (results, error) {
	l, _, err := newStint(n, plenty())
	if err != nil {
		return nil, err
	}
	order := shuffled(n)
	fill(allows(l), 0, n)
	contenders := []contender{
		{name: justCores, run: arithmetic},
		{name: "(clock, hash, lock, one slot)", run: sweep(order, oneSlot(n))},
		{name: stintAllow, ours: true, run: sweep(order, allows(l))},
		{name: stintTake, ours: true, run: sweep(order, takes(l))},
	}
	for _, lib := range append(libraries[:len(libraries):len(libraries)], keyedLimiter{mutexMap, newMutexMap}) {
		b, err := lib.make()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", lib.name, err)
		}
		fill(b, 0, n)
		contenders = append(contenders, contender{name: lib.name, run: sweep(order, b)})
	}
	return f.race(onBoth(contenders))
}

func (f *figures) keyedChecks(rs results, n int) {
	beside := func(cores int, promised float64) {
		allow, ok := rs.of(stintAllow, cores)
		if best, found := rs.fastest(libraryNames(), cores); ok && found {
			f.AtMost(promised, allow.ratio(best), " ×", "keyed Allow, %d keys, cores: %d, beside the fastest library (%s)", n, cores, best.name)
			f.Doubt(allow.doubtful() || best.doubtful())
		}
	}
	if n <= 1000 {
		beside(1, 0.6)
	} else {
		beside(1, 0.4)
		beside(twoCores, 0.3)
	}
	allow, _ := rs.of(stintAllow, 1)
	take, _ := rs.of(stintTake, 1)
	f.AtMost(1.25, take.ratio(allow), " ×", "keyed Take beside Allow, %d keys, one core", n)
	if two, ok := rs.of(stintAllow, twoCores); ok && n > 1000 { // on few keys cores fight for the same lines of cache
		f.AtLeast(1.8, allow.ratio(two), " ×", "keyed Allow, %d keys, throughput of two cores beside one%s", n, rs.scaling())
		f.Doubt(two.doubtful())
	}
	f.noAllocations(rs, fmt.Sprintf("%d keys", n))
}

// justCores is arithmetic without memory: what two cores reach of it is what the
// machine had to give while it was measured.
const justCores = "(arithmetic alone)"

// scaling says how much more two cores gave than one in the same run.
func (rs results) scaling() string {
	one, ok := rs.of(justCores, 1)
	two, found := rs.of(justCores, twoCores)
	if !ok || !found {
		return ""
	}
	return fmt.Sprintf(" (arithmetic alone: %s)", times(one.ratio(two)))
}

// arithmetic is xorshift64, some rounds of it.
func arithmetic(worker, n int) int {
	x := uint64(worker + 1)
	for range n {
		for range 16 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	return alive(n, x)
}

// oneSlot is the least that an exact limiter under locks does for a key, with
// no search, no limit and no answer: a clock read, a hash, one of 64 locks and
// one slot of two words in a table of that size, wherever that is in memory.
func oneSlot(n int) batch {
	slots := make([]uint64, 2*(n+n/4))
	seed := maphash.MakeSeed()
	var locks [64]struct {
		sync.Mutex
		_ [120]byte // neighbours do not share a cache line
	}
	return func(keys []string) int {
		for _, key := range keys {
			h := maphash.String(seed, key)
			now := uint64(time.Since(begin))
			i := uint64(uint32(h)) * uint64(len(slots)/2) >> 32
			lock := &locks[i%64]
			lock.Lock()
			slot := slots[2*i:][:2]
			slot[0], slot[1] = h, max(slot[1], now)+1
			lock.Unlock()
		}
		return len(keys)
	}
}

// shuffled returns the keys that fill makes in random order. Their bytes lie
// in memory in that order too, because the key of a request has just been read
// and is warm, while what a limiter keeps of it is not.
func shuffled(n int) []string {
	var text strings.Builder
	ends := make([]int, n)
	var buf []byte
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		buf = appendKey(buf[:0], k)
		text.Write(buf)
		ends[i] = text.Len()
	}
	keys := make([]string, n)
	from := 0
	for i, end := range ends {
		keys[i], from = text.String()[from:end], end
	}
	return keys
}

// sweep returns a contender's run over keys: round and round, each worker from
// a place of its own.
func sweep(keys []string, b batch) func(worker, n int) int {
	var places [twoCores]struct {
		at int
		_  [120]byte // workers do not share a cache line
	}
	for worker := range places {
		places[worker].at = worker * len(keys) / twoCores
	}
	return func(worker, n int) (passed int) {
		at := &places[worker].at
		for n > 0 {
			part := keys[*at:min(*at+n, len(keys))]
			passed += b(part)
			n -= len(part)
			if *at += len(part); *at == len(keys) {
				*at = 0
			}
		}
		return passed
	}
}
