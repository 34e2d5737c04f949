package benchmarks_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

const (
	redisKeys    = 10_000
	redisCallers = 128
	redisBurst   = 1_000_000 // of each key, of 1/s: everything is admitted, and no key expires at once
)

// leastScript is the least that a script which keeps a key does.
const leastScript = `local t = redis.call('TIME')
local v = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], t[1], 'PX', 1000)
return v`

// A redisRival is one way to decide on a key, which is to be admitted.
type redisRival struct {
	name string
	call func(ctx context.Context, key string) error
}

// redisRivals are all.
func redisRivals(b *testing.B, client redis.UniversalClient) []redisRival {
	script := redis.NewScript(leastScript)
	gcra := must(throttled.NewGCRARateLimiterCtx(must(throttledredis.NewCtx(client, "throttled:"))(b), throttled.RateQuota{MaxRate: throttled.PerSec(1), MaxBurst: redisBurst - 1}))(b)
	window := limiter.New(must(ululeredis.NewStore(client))(b), limiter.Rate{Period: time.Minute, Limit: redisBurst})
	return []redisRival{
		{"EVALSHA", func(ctx context.Context, key string) error {
			if err := script.EvalSha(ctx, client, []string{"least:" + key}).Err(); !errors.Is(err, redis.Nil) {
				return err
			}
			return nil
		}},
		{"stint", redisStint(b, client, "one", "1/s burst 1000000")},
		{"stint,three-limits", redisStint(b, client, "three", "1/s burst 1000000", "50/1m burst 1000000", "2000/1h burst 1000000")},
		redisRate(client),
		{"throttled", func(ctx context.Context, key string) error {
			limited, _, err := gcra.RateLimitCtx(ctx, key, 1)
			return admitted(!limited, err)
		}},
		{"ulule,fixed-window", func(ctx context.Context, key string) error {
			c, err := window.Get(ctx, key)
			return admitted(!c.Reached, err)
		}},
	}
}

func redisRate(client redis.UniversalClient) redisRival {
	rate := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: 1, Burst: redisBurst, Period: time.Second}
	return redisRival{"redis_rate", func(ctx context.Context, key string) error {
		r, err := rate.Allow(ctx, key, limit)
		return admitted(err == nil && r.Allowed == 1, err)
	}}
}

// redisStint takes one unit of limits as text.
func redisStint(b *testing.B, client redis.UniversalClient, name string, texts ...string) func(context.Context, string) error {
	store := must(redisstore.New(redisstore.Options{Client: client, Timeout: 10 * time.Second, NewKeys: -1}))(b) // it is about how long they take; all keys are new at first
	b.Cleanup(func() { _ = store.Close() })
	limits := make([]stint.Limit, len(texts))
	for i, text := range texts {
		limits[i] = must(stint.Parse(text))(b).WithName(name + strconv.Itoa(i))
	}
	l := must(stint.NewLimiter(store, name, limits...))(b)
	return func(ctx context.Context, key string) error { return admitted(l.Allow(ctx, key)) }
}

func admitted(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("denied: all calls are to be admitted")
	}
	return err
}

// crowd times decisions of so many callers on all keys in turn, and what the servers use
// for each. ns/op is the time per decision of all callers together.
func (r *redisRival) crowd(b *testing.B, callers int, cpu func(testing.TB) time.Duration) {
	var next atomic.Int64
	var all sync.WaitGroup
	if err := r.call(b.Context(), "key0"); err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		b.Fatal(err)
	}
	before := cpu(b)
	b.ResetTimer()
	for range callers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := r.call(b.Context(), "key"+strconv.FormatInt(i%redisKeys, 10)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N)/1000, "server-µs/op")
}

// BenchmarkRedis is a decision in Redis, by one caller and by many.
func BenchmarkRedis(b *testing.B) {
	server := redistest.Start(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: redisCallers, ContextTimeoutEnabled: true})
	defer client.Close()
	if err := redis.NewScript(leastScript).Load(b.Context(), client).Err(); err != nil {
		b.Fatal(err)
	}
	for _, r := range redisRivals(b, client) {
		for _, callers := range []int{1, redisCallers} {
			b.Run(fmt.Sprintf("by=%s/callers=%d", r.name, callers), func(b *testing.B) { r.crowd(b, callers, usedBy(client)) })
		}
	}
}

// BenchmarkCluster is a decision on a cluster of three masters, beside one server.
func BenchmarkCluster(b *testing.B) {
	one := redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr, PoolSize: redisCallers, ContextTimeoutEnabled: true})
	defer one.Close()
	cluster := redistest.StartCluster(b, 3, 0)
	three := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), PoolSize: redisCallers, ContextTimeoutEnabled: true})
	defer three.Close()
	var masters []*redis.Client
	for _, s := range cluster.Masters() {
		masters = append(masters, redis.NewClient(&redis.Options{Addr: s.Addr}))
	}
	for _, on := range []struct {
		name   string
		client redis.UniversalClient
		cpu    func(testing.TB) time.Duration
	}{{"server", one, usedBy(one)}, {"cluster", three, usedBy(masters...)}} {
		for _, r := range []redisRival{{"stint", redisStint(b, on.client, "spread", "1/s burst 1000000")}, redisRate(on.client)} {
			b.Run(fmt.Sprintf("by=%s/on=%s", r.name, on.name), func(b *testing.B) { r.crowd(b, redisCallers/2, on.cpu) })
		}
	}
}

// usedBy returns what tells the processor time that servers have used.
func usedBy(servers ...*redis.Client) func(testing.TB) time.Duration {
	return func(t testing.TB) (sum time.Duration) {
		for _, one := range servers {
			for name, text := range one.InfoMap(t.Context(), "cpu").Val()["CPU"] {
				if name == "used_cpu_user" || name == "used_cpu_sys" {
					sum += time.Duration(must(strconv.ParseFloat(text, 64))(t) * float64(time.Second))
				}
			}
		}
		return sum
	}
}
