package benchmarks_test

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// A batch decides one request for each key, and returns how many passed. The
// loop is inside so that no contender pays for being called through a function
// value.
type batch func(keys []string) (passed int)

// A rival is a way to limit by key. open returns one that holds every key to plenty, with
// room for so many.
type rival struct {
	name string
	open func(t testing.TB, keys int) batch
}

// rivals are stint, what no limiter under locks can go below, and limiters by other
// people, each through its own way to limit by key; x/time/rate has none, so it gets the
// usual mutex and map.
var rivals = []rival{
	{"stint-Allow", func(t testing.TB, keys int) batch { return allows(newStint(t, keys, plenty())) }},
	{"stint-Take", func(t testing.TB, keys int) batch { return takes(newStint(t, keys, plenty())) }},
	{"one-slot", func(_ testing.TB, keys int) batch { return oneSlot(keys) }},
	{"x-time-rate", func(testing.TB, int) batch { return newXTime() }},
	{"sethvargo", func(t testing.TB, _ int) batch { return newSethvargo(t) }},
	{"throttled", func(t testing.TB, _ int) batch { return newThrottled(t) }},
	{"ulule", func(testing.TB, int) batch { return newUlule() }},
	{"httprate", func(testing.TB, int) batch { return newHTTPRate() }},
	{"mutex-map", func(testing.TB, int) batch { return newMutexMap() }},
}

// plenty is a limit that is never reached, a unit a nanosecond: what is timed
// is the way of what passes. All rivals are held to the same.
const (
	plentyCount  = int64(time.Hour)
	plentyPeriod = time.Hour
)

// begin is where the monotonic clock is read from.
var begin = time.Now()

// newStint returns a limiter over a store of its own with room for the given number
// of keys under each limit.
func newStint(t testing.TB, keys int, limits ...stint.Limit) *stint.Limiter {
	store := memstore.New(memstore.Options{MaxKeys: max(2*keys, 1<<16) * len(limits), MaxBytes: 8 << 30})
	return must(stint.NewLimiter(store, "api", limits...))(t)
}

// must returns a function that ends a benchmark if what was called has failed.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func plenty() stint.Limit { return stint.New(plentyCount, plentyPeriod) }

// allows is not inlined: a function literal that is copied into a caller loses
// the inlining of the calls within, which a plain call of Allow has.
//
//go:noinline
func allows(l *stint.Limiter) batch {
	ctx := context.Background()
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if ok, err := l.Allow(ctx, key); ok && err == nil {
				passed++
			}
		}
		return passed
	}
}

//go:noinline
func takes(l *stint.Limiter) batch {
	ctx := context.Background()
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if d, err := l.Take(ctx, key, 1); d.Allowed && err == nil {
				passed++
			}
		}
		return passed
	}
}

// newXTime is what articles write around x/time/rate.
func newXTime() batch {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter)
	allow := func(key string) bool {
		mu.Lock()
		l, ok := limiters[key]
		if !ok {
			l = rate.NewLimiter(rate.Limit(1e9), int(plentyCount))
			limiters[key] = l
		}
		mu.Unlock()
		return l.Allow()
	}
	return each(allow)
}

// newMutexMap is the least that limits by key: one lock, one map, exact GCRA.
func newMutexMap() batch {
	var mu sync.Mutex
	tats := make(map[string]int64)
	step, full := int64(plentyPeriod)/plentyCount, int64(plentyPeriod)
	allow := func(key string) bool {
		mu.Lock()
		now := int64(time.Since(begin))
		tat := max(tats[key], now) + step
		ok := tat-now <= full
		if ok {
			tats[key] = tat
		}
		mu.Unlock()
		return ok
	}
	return each(allow)
}

func each(allow func(string) bool) batch {
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if allow(key) {
				passed++
			}
		}
		return passed
	}
}

func newSethvargo(t testing.TB) batch {
	store := must(memorystore.New(&memorystore.Config{Tokens: uint64(plentyCount), Interval: plentyPeriod}))(t)
	t.Cleanup(func() { store.Close(context.Background()) })
	ctx := context.Background()
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if _, _, _, ok, err := store.Take(ctx, key); ok && err == nil {
				passed++
			}
		}
		return passed
	}
}

// newThrottled has no bound on its keys, which is its fast way: with a bound
// it keeps an LRU list.
func newThrottled(t testing.TB) batch {
	l := must(throttled.NewGCRARateLimiterCtx(must(throttledstore.NewCtx(0))(t), throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(plentyCount), plentyPeriod),
		MaxBurst: int(plentyCount) - 1,
	}))(t)
	ctx := context.Background()
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if limited, _, err := l.RateLimitCtx(ctx, key, 1); !limited && err == nil {
				passed++
			}
		}
		return passed
	}
}

func newUlule() batch {
	l := limiter.New(ululestore.NewStore(), limiter.Rate{Period: plentyPeriod, Limit: plentyCount})
	ctx := context.Background()
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if c, err := l.Get(ctx, key); !c.Reached && err == nil {
				passed++
			}
		}
		return passed
	}
}

// newHTTPRate does what httprate's OnLimit does, without the request and the
// headers: one lock over the look and the increment, and two clock reads.
func newHTTPRate() batch {
	counter := httprate.NewLocalLimitCounter(plentyPeriod)
	l := httprate.NewRateLimiter(int(plentyCount), plentyPeriod, httprate.WithLimitCounter(counter))
	var mu sync.Mutex
	allow := func(key string) bool {
		window := time.Now().UTC().Truncate(plentyPeriod)
		mu.Lock()
		defer mu.Unlock()
		ok, _, err := l.Status(key)
		return ok && err == nil && counter.IncrementBy(key, window, 1) == nil
	}
	return each(allow)
}

// appendKey appends the text of key i: 12 bytes up to ten million.
func appendKey(b []byte, i int) []byte {
	return strconv.AppendInt(append(b, "user:"...), int64(i)+1_000_000, 10)
}

// fill shows every key from one number to another once, in order, as strings
// of their own, which a limiter may keep or not.
func fill(b batch, from, to int) {
	var buf []byte
	keys := make([]string, 0, chunk)
	for i := from; i < to; {
		for keys = keys[:0]; len(keys) < chunk && i < to; i++ {
			buf = appendKey(buf[:0], i)
			keys = append(keys, string(buf))
		}
		b(keys)
		clear(keys)
	}
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

// TestRivals holds each to let everything pass: what denies is not measured beside others.
func TestRivals(t *testing.T) {
	keys := shuffled(chunk)
	for _, r := range rivals {
		if n := r.open(t, chunk)(keys); n != chunk {
			t.Errorf("%s: %d of %d passed", r.name, n, chunk)
		}
	}
}
