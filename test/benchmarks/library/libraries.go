package library

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter"
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

// A keyedLimiter is a way to limit by key. make returns an empty one that
// holds every key to plenty.
type keyedLimiter struct {
	name string
	make func() (batch, error)
}

const (
	stintAllow = "stint Allow"
	stintTake  = "stint Take"
	mutexMap   = "mutex + map of GCRA"
)

// libraries are the limiters by other people, each through its own way to
// limit by key; x/time/rate has none, so it gets the usual mutex and map.
var libraries = []keyedLimiter{
	{"x/time/rate in a map", newXTime},
	{"sethvargo/go-limiter", newSethvargo},
	{"throttled", newThrottled},
	{"ulule/limiter", newUlule},
	{"go-chi/httprate", newHTTPRate},
}

func libraryNames() []string {
	var names []string
	for _, l := range libraries {
		names = append(names, l.name)
	}
	return names
}

// newStint returns a limiter over a store of its own with room for the given number
// of keys under each limit.
func newStint(keys int, limits ...stint.Limit) (*stint.Limiter, *memstore.Store, error) {
	store := memstore.New(memstore.Options{MaxKeys: max(2*keys, 1<<16) * len(limits), MaxBytes: 8 << 30})
	l, err := stint.NewLimiter(store, "api", limits...)
	return l, store, err
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
func newXTime() (batch, error) {
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
	return each(allow), nil
}

// newMutexMap is the least that limits by key: one lock, one map, exact GCRA.
func newMutexMap() (batch, error) {
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
	return each(allow), nil
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

func newSethvargo() (batch, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(plentyCount), Interval: plentyPeriod})
	if err != nil {
		return nil, err
	}
	// Its goroutine would keep an unused store alive, and spoil what is measured
	// of the heap later.
	held := &struct{ golimiter.Store }{store}
	runtime.AddCleanup(held, func(s golimiter.Store) { _ = s.Close(context.Background()) }, store)
	ctx := context.Background()
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if _, _, _, ok, err := held.Take(ctx, key); ok && err == nil {
				passed++
			}
		}
		return passed
	}, nil
}

// newThrottled has no bound on its keys, which is its fast way: with a bound
// it keeps an LRU list.
func newThrottled() (batch, error) {
	store, err := throttledstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(plentyCount), plentyPeriod),
		MaxBurst: int(plentyCount) - 1,
	})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if limited, _, err := l.RateLimitCtx(ctx, key, 1); !limited && err == nil {
				passed++
			}
		}
		return passed
	}, nil
}

func newUlule() (batch, error) {
	l := limiter.New(ululestore.NewStore(), limiter.Rate{Period: plentyPeriod, Limit: plentyCount})
	ctx := context.Background()
	return func(keys []string) (passed int) {
		for _, key := range keys {
			if c, err := l.Get(ctx, key); !c.Reached && err == nil {
				passed++
			}
		}
		return passed
	}, nil
}

// newHTTPRate does what httprate's OnLimit does, without the request and the
// headers: one lock over the look and the increment, and two clock reads.
func newHTTPRate() (batch, error) {
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
	return each(allow), nil
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
