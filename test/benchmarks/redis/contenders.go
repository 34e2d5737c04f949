package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

const (
	keys    = 10_000
	callers = 128
	plenty  = 1_000_000 // the burst of each key, of 1/s: everything is admitted, and no key expires at once
	logFull = 1000      // entries of a full log
	logHas  = 900       // entries of a log when it is timed
	logKeys = 500       // each is good for logFull − logHas calls
)

// A contender is one way to decide.
type contender struct {
	name string
	// call decides on the i-th key, and is to be admitted.
	call func(ctx context.Context, key string) error
	// before, if set, makes things ready for a slice.
	before func() error
	// made, if set, returns how many calls of the server have been made.
	made func() uint64
	// keys is how many keys it is called with; 0 is keys.
	keys int
}

var errDenied = errors.New("denied: all calls are to be admitted")

// leastScript is the least that a script which keeps a key does.
const leastScript = `local t = redis.call('TIME')
local v = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], t[1], 'PX', 1000)
return v`

// names of contenders that ratios are taken of.
const (
	least     = "EVALSHA of TIME, GET, SET with PX"
	ours      = "stint, gcra"
	ours3     = "stint, three layers"
	oursTiers = "stint, gcra, one of two tiers"
	oursLog   = "stint, sliding_log of 900 to 1,000"
	redisRate = "redis_rate"
)

// contenders returns all, and what closes the stores among them.
func (s *redisServer) contenders() (all []contender, done func(), err error) {
	var stores []*redisstore.Store
	done = func() {
		for _, one := range stores {
			_ = one.Close()
		}
	}
	open := func(o redisstore.Options) *redisstore.Store {
		o.Timeout = 10 * time.Second // this is about how long they take, not whether they do
		o.NewKeys = -1               // all keys are new at first
		store, err2 := redisstore.New(o)
		if err = errors.Join(err, err2); err2 == nil {
			stores = append(stores, store)
		}
		return store
	}
	own := open(redisstore.Options{Client: s.client})
	if err != nil {
		return nil, done, err
	}
	all = s.floors()
	for n, one := range []struct {
		name  string
		store *redisstore.Store
		texts []string
	}{
		{ours, own, []string{"1/s burst 1000000"}},
		{ours3, own, []string{"1/s burst 1000000", "50/1m burst 1000000", "2000/1h burst 1000000"}},
		{"stint, sliding_counter", own, []string{"1000000/1m sliding_counter"}},
		{oursTiers, own, []string{"1/s burst 1000000"}},
	} {
		name := "c" + strconv.Itoa(n)
		if one.name == oursTiers { // another tier of the same name
			if _, err := own.Bind(name, stint.PerHour(1000)); err != nil {
				return nil, done, err
			}
		}
		limiter, err := limiterOf(one.store, name, one.texts...)
		if err != nil {
			return nil, done, err
		}
		all = append(all, contender{name: one.name, call: allow(limiter)})
	}
	full, err := s.log(own)
	if err != nil {
		return nil, done, err
	}
	others, err := s.others()
	return append(append(all, full), others...), done, err
}

// limiterOf returns a limiter of limits as text, whose names begin with name:
// under the same name they would be one.
func limiterOf(store stint.Store, name string, texts ...string) (*stint.Limiter, error) {
	limits := make([]stint.Limit, len(texts))
	for i, text := range texts {
		l, err := stint.Parse(text)
		if err != nil {
			return nil, err
		}
		limits[i] = l.WithName(name + "-" + strconv.Itoa(i))
	}
	return stint.NewLimiter(store, name, limits...)
}

// allow returns the call that takes one unit.
func allow(l *stint.Limiter) func(context.Context, string) error {
	return func(ctx context.Context, key string) error { return admitted(l.Allow(ctx, key)) }
}

func admitted(ok bool, err error) error {
	if err == nil && !ok {
		return errDenied
	}
	return err
}

// floors are what none can go below.
func (s *redisServer) floors() []contender {
	script := redis.NewScript(leastScript)
	return []contender{
		{name: "GET", call: func(ctx context.Context, key string) error {
			return unlessNil(s.client.Get(ctx, key).Err())
		}},
		{name: least, call: func(ctx context.Context, key string) error {
			return unlessNil(script.Run(ctx, s.client, []string{key}).Err())
		}},
	}
}

func unlessNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// log is a log that is nearly full, and is made so again before each slice by
// copies of one that was filled by decisions.
func (s *redisServer) log(store *redisstore.Store) (contender, error) {
	limit := stint.PerHour(logFull).WithAlgorithm(meter.SlidingLog).WithName("log")
	limiter, err := stint.NewLimiter(store, "log", limit)
	if err != nil {
		return contender{}, err
	}
	ctx := context.Background()
	for range logHas {
		if err := admitted(limiter.Allow(ctx, "filled")); err != nil {
			return contender{}, err
		}
	}
	filled, keys, err := s.logNames(ctx, limiter)
	if err != nil {
		return contender{}, err
	}
	before := func() error {
		pipe := s.client.Pipeline()
		for _, key := range keys {
			pipe.Copy(ctx, filled, key, 0, true)
		}
		done, err := pipe.Exec(ctx)
		for _, one := range done {
			if n, ok := one.(*redis.IntCmd); ok && n.Val() != 1 {
				return fmt.Errorf("%v: nothing was copied", one)
			}
		}
		return err
	}
	return contender{name: oursLog, call: allow(limiter), before: before, keys: logKeys}, nil
}

// logNames returns the names of the states of the log that is full and of those
// that it is copied to.
func (s *redisServer) logNames(ctx context.Context, limiter *stint.Limiter) (filled string, keys []string, err error) {
	for i := range logKeys {
		if err := admitted(limiter.Allow(ctx, keyOf(i))); err != nil {
			return "", nil, err
		}
	}
	all, err := s.client.Keys(ctx, "stint:{*}:log/log*").Result()
	if err != nil || len(all) != logKeys+1 {
		return "", nil, fmt.Errorf("%d logs, of %d: %w", len(all), logKeys+1, err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, ":filled") {
			filled = name
		} else {
			keys = append(keys, name)
		}
	}
	return filled, keys, nil
}

// others are the other libraries.
func (s *redisServer) others() ([]contender, error) {
	rate := redis_rate.NewLimiter(s.client)
	rateLimit := redis_rate.Limit{Rate: 1, Burst: plenty, Period: time.Second}
	store, err := throttledredis.NewCtx(s.client, "throttled:")
	if err != nil {
		return nil, err
	}
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1), MaxBurst: plenty - 1})
	if err != nil {
		return nil, err
	}
	counters, err := ululeredis.NewStore(s.client)
	if err != nil {
		return nil, err
	}
	window := limiter.New(counters, limiter.Rate{Period: time.Minute, Limit: plenty})
	return []contender{
		{name: redisRate, call: func(ctx context.Context, key string) error {
			r, err := rate.Allow(ctx, key, rateLimit)
			return admitted(err == nil && r.Allowed == 1, err)
		}},
		{name: "throttled", call: func(ctx context.Context, key string) error {
			limited, _, err := gcra.RateLimitCtx(ctx, key, 1)
			return admitted(!limited, err)
		}},
		{name: "ulule/limiter (fixed window)", call: func(ctx context.Context, key string) error {
			c, err := window.Get(ctx, key)
			return admitted(!c.Reached, err)
		}},
	}, nil
}

func keyOf(i int) string { return "key" + strconv.Itoa(i) }

// indexOf is the way back.
func indexOf(key string) int {
	i, _ := strconv.Atoi(strings.TrimPrefix(key, "key"))
	return i
}
