package redisstore_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// floor is the least that a script that keeps a key does.
const floor = `local t = redis.call('TIME')
local v = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], t[1], 'PX', 1000)
return v`

// BenchmarkCPU says what a decision costs Redis: script-µs/op is what INFO
// commandstats says of the command, by the clock on the wall, cpu-µs/op the
// processor time of the whole server.
func BenchmarkCPU(b *testing.B) {
	server := redistest.Start(b)
	c := client(b, server.Addr)
	ctx := context.Background()
	measure := func(name, command string, do func(i int) error) {
		b.Run(name, func(b *testing.B) {
			reset(b, c)
			before := cpuOf(b, c)
			b.ResetTimer()
			var wg sync.WaitGroup
			for g := range redisstore.MaxInFlight { // none wait for a batch
				wg.Add(1)
				go func() {
					defer wg.Done()
					for i := g; i < b.N; i += redisstore.MaxInFlight {
						if err := do(i); err != nil {
							b.Error(err)
						}
					}
				}()
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(usecPerCall(b, c, command), "script-µs/op")
			b.ReportMetric((cpuOf(b, c)-before)/float64(b.N)*1e6, "cpu-µs/op")
		})
	}
	measure("floor/GET", "get", func(i int) error {
		err := c.Get(ctx, "some key").Err()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	script := redis.NewScript(floor)
	measure("floor/EVALSHA", "evalsha", func(i int) error {
		err := script.Run(ctx, c, []string{"key" + strconv.Itoa(i%100)}).Err()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	for _, texts := range [][]string{
		{"1000000/s"}, {"every 1000h"}, {"7000/1m burst 7000"}, {"100000/s", "1000000/1m", "10000000/1h"},
		{"1000000/s token_bucket_interval"}, {"1000000/s leaky_queue"}, {"1000000/s fixed_window"}, {"1000000 per day in Europe/Paris"},
		{"1000000/s sliding_counter"}, {"1000000/s sliding_buckets"},
		{"1000/1h sliding_log"}, {"100/1h sliding_log"},
	} {
		store := open(b, server.URL(), redisstore.Options{})
		bound := bind(b, store, texts...)
		measure(strings.Join(texts, ","), "evalsha", func(i int) error {
			_, err := bound.Decide(ctx, meter.OpTake, "key"+strconv.Itoa(i%100), 1)
			return err
		})
		store.Close()
	}
}

func bind(t testing.TB, store stint.Store, texts ...string) stint.Bound {
	t.Helper()
	var limits []stint.Limit
	for _, text := range texts {
		l := parse(t, text)
		if len(texts) > 1 {
			l = l.WithName(text)
		}
		limits = append(limits, l)
	}
	b := made.Bound(t, store, strings.Join(texts, " + "), limits...)
	return b
}

func reset(t testing.TB, c redis.UniversalClient) {
	t.Helper()
	if err := c.ConfigResetStat(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

// usecPerCall returns what the server says of a command.
func usecPerCall(t testing.TB, c redis.UniversalClient, command string) float64 {
	t.Helper()
	info, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":")
	_, rest, _ = strings.Cut(rest, "usec_per_call=")
	number, _, _ := strings.Cut(rest, ",")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		t.Fatalf("%s: no usec_per_call: %v", command, err)
	}
	return v
}

// cpuOf returns the processor time that the server has used, in seconds.
func cpuOf(t testing.TB, c redis.UniversalClient) (sum float64) {
	t.Helper()
	info, err := c.Info(context.Background(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		_, rest, _ := strings.Cut(info, name)
		number, _, _ := strings.Cut(rest, "\r")
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("INFO cpu: %s: %v", name, err)
		}
		sum += v
	}
	return sum
}

// bytesOf returns the bytes of a key of 22 bytes after the given number of takes,
// spread evenly over a period.
func bytesOf(t testing.TB, c redis.UniversalClient, url, text string, takes int) int64 {
	t.Helper()
	l := parse(t, text)
	now := time.Now().UnixNano()
	o := redisstore.Options{Prefix: "s", Now: func() int64 { return now }}
	store := open(t, url, o)
	key := strings.Repeat("k", 14)
	limit := made.Bound(t, store, "l", l)
	ctx := context.Background()
	for range takes {
		if _, err := limit.Decide(ctx, meter.OpTake, key, 1); err != nil {
			t.Fatal(err)
		}
		now += int64(l.Period()) / int64(takes)
	}
	name := redisstore.StateOf(o, key, limit)
	n, err := c.MemoryUsage(ctx, name).Result()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := c.Del(ctx, name).Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// BenchmarkLocal is what a decision costs that asks no server.
func BenchmarkLocal(b *testing.B) {
	server := redistest.Start(b)
	for _, c := range []struct {
		name string
		mode redisstore.Mode
		text string
	}{
		{"lease", redisstore.Lease, "1000000000/1s"},
		{"async", redisstore.Async, "1000000000/1s"},
		{"share", redisstore.Share, "1000000000/1s"},
		{"denied", redisstore.Strict, "1/1000h"},
	} {
		s := open(b, server.URL(), redisstore.Options{Modes: redisstore.Modes{DenialCache: time.Hour}})
		limit := bindIn(b, s, c.mode, c.text)
		warm := func(key string) {
			for range 100 {
				if _, err := limit.Allow(ctx, key, 1); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(c.name+"/one key", func(b *testing.B) {
			b.ReportAllocs()
			warm("k")
			for b.Loop() {
				_, _ = limit.Allow(ctx, "k", 1)
			}
		})
		b.Run(c.name+"/one key, parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					_, _ = limit.Allow(ctx, "k", 1)
				}
			})
		})
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = "key " + strconv.Itoa(i)
		}
		b.Run(c.name+"/1000 keys", func(b *testing.B) {
			b.ReportAllocs()
			for _, key := range keys {
				warm(key)
			}
			i := 0
			for b.Loop() {
				_, _ = limit.Allow(ctx, keys[i%len(keys)], 1)
				i++
			}
		})
		s.Close()
	}
}

// BenchmarkLeaseHot is four nodes on one hot key of 1,000,000 a second, each
// asked for 375,000: at 1.5 × the limit. It runs for b.N × 100 ms, when the
// burst has been used up. calls/1000 is how many calls the server got for
// 1,000 that were admitted, used which part of the limit was.
func BenchmarkLeaseHot(b *testing.B) {
	server := redistest.Start(b)
	const rate, count = 1_000_000, 4
	stores := nodes(b, server.URL(), count, redisstore.Options{})
	limits := make([]stint.Bound, count)
	for i, s := range stores {
		limits[i] = bindIn(b, s, redisstore.Lease, "1000000/1s")
	}
	take(b, limits[0], "k", 900_000) // the burst
	var admitted, asked atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	for _, limit := range limits {
		wg.Go(func() {
			began, done := time.Now(), int64(0)
			for !over.Load() {
				due := int64(time.Since(began)*rate*3/2/count) / int64(time.Second)
				got := int64(0)
				for range due - done {
					ok, err := limit.Allow(ctx, "k", 1)
					if err != nil {
						b.Error(err)
					}
					if ok {
						got++
					}
				}
				admitted.Add(got)
				asked.Add(due - done)
				done = due
				runtime.Gosched()
				time.Sleep(200 * time.Microsecond)
			}
		})
	}
	time.Sleep(time.Second)
	b.ResetTimer()
	before, was, wanted, began := calls(b, server), admitted.Load(), asked.Load(), time.Now()
	time.Sleep(time.Duration(b.N) * 100 * time.Millisecond)
	got, elapsed := admitted.Load()-was, time.Since(began)
	b.ReportMetric(float64(calls(b, server)-before)/float64(got)*1000, "calls/1000")
	b.ReportMetric(float64(got)/elapsed.Seconds()/rate, "used")
	b.ReportMetric(float64(asked.Load()-wanted)/elapsed.Seconds()/rate, "asked")
	over.Store(true)
	wg.Wait()
}
