package redisstore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
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
