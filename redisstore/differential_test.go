package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A pair is a store in Redis and its twin in memory, on one virtual clock of
// whole microseconds: the same is done to both, and the same must come back. The clock of
// Redis is up to a microsecond ahead, which Redis leaves out.
type pair struct {
	testing.TB
	redis, memory stint.Store
	prefix        string
	now           int64
	rnd           *rand.Rand
	limits        []mirrored
	at            int // which of them the next step is about
	tokens        []tokens
	flooded       redis.UniversalClient // where Redis has no room for another key, else nil
}

type mirrored struct {
	stint.Limit
	redis, memory stint.Bound
}

type tokens struct {
	redis, memory stint.ReservationID
	cost          int64
}

const microsecond = int64(time.Microsecond)

// micros rounds a decision of a clock of nanoseconds up to whole microseconds.
func micros(d stint.Decision) stint.Decision {
	if wait, ok := d.RetryAfter.Duration(); ok {
		d.RetryAfter = stint.Wait(roundUp(wait))
	}
	d.ResetAfter, d.Delay = roundUp(d.ResetAfter), roundUp(d.Delay)
	return d
}

func roundUp(d time.Duration) time.Duration {
	switch rest := d % time.Microsecond; {
	case rest == 0:
		return d
	case d > math.MaxInt64-time.Microsecond:
		return math.MaxInt64
	default:
		return d + time.Microsecond - rest
	}
}

// texts is every kind, with ratios that do not divide, every option and nearly the
// greatest numbers that Redis takes.
var texts = []string{
	"5/s", "10/s burst 20", "1000/s", "7/1m", "3/1us", "13/1m burst 4", "10/100ns", "1_000_000_007/1h burst 50",
	"every 2s", "every 333333333ns", "3/1001ns burst 2", "1_000_000_000_000_000/1s", "1/100000h", "7/1s burst 1",
	"10/s burst 20 debt 55", "7/1m burst 9 debt 4", "1_000_000_000_000_000/1s debt 1_000_000_000_000_000",
	"7/1m debt 40 token_bucket_interval", "7/1m burst 3 debt 60 leaky_queue",
	"5/s burst 10 token_bucket_interval", "7/1m token_bucket_interval", "3/10s burst 2 token_bucket_interval",
	"3/15us burst 7 token_bucket_interval", "1_000_000_000_000_000/1h token_bucket_interval",
	"5/s burst 10 leaky_queue", "7/1m burst 3 leaky_queue", "3/s burst 0 leaky_queue",
	"1_000_000_000_000_000/1s leaky_queue burst 999_999_999_999_999",
	"5/s fixed_window", "7/1m fixed_window count_denied", "4/33us fixed_window",
	"5/s fixed_window from first", "4/33us fixed_window from first count_denied", "1_000_000_000_000_000/1h fixed_window from first",
	"1_000_000_000_000_000/1h fixed_window count_denied", "1_000_000_000_000_000/1h fixed_window",
	"6 per day in Europe/Paris", "9 per month in UTC", "9 per month from 31 in Europe/Paris", "8 per week in UTC", "7 per quarter in UTC", "6 per year in America/New_York", "6 per day in America/St_Johns count_denied",
	"5/s sliding_log", "7/1m sliding_log", "4/1m sliding_log count_denied", "300/10s sliding_log", "5/25us sliding_log",
	"10/1m sliding_counter", "3/1us sliding_counter", "7/1m sliding_counter relaxed", "7/10s sliding_counter count_denied",
	"5/s sliding_counter relaxed count_denied", "1_000_000_000_007/24h sliding_counter", "4/33us sliding_counter relaxed",
	"1_000_000_000_000_000/1h sliding_counter", "1_000_000_000_000_000/1h sliding_counter relaxed count_denied",
	"10/1m sliding_buckets", "7/1m sliding_buckets parts 7", "5/s sliding_buckets parts 1", "9/10s sliding_buckets parts 3 count_denied",
	"50/1h sliding_buckets parts 3600", "5/33us sliding_buckets parts 7", "4/10us sliding_buckets",
	"1_000_000_000_000_000/1h sliding_buckets count_denied",
	"5/s ban 3s", "7/1m burst 3 leaky_queue ban 1us", "9/1m sliding_log ban 20s", "5/s fixed_window count_denied ban 2s", "4/10us sliding_buckets ban 15us",
}

// mostCost keeps counts below 2^53, at which those of Redis stop.
const mostCost = 1 << 36

func newPair(t testing.TB, url string, seed uint64) *pair {
	p := &pair{TB: t, now: 1_750_000_000_123_456_000, rnd: rand.New(rand.NewPCG(seed, 99)), prefix: fmt.Sprint("pair", prefixes.Add(1))}
	p.redis = open(t, url, redisstore.Options{Prefix: p.prefix, Now: func() int64 { return p.now + p.now/microsecond%microsecond }})
	p.memory = memstore.New(memstore.Options{Now: func() int64 { return p.now }})
	for _, text := range texts {
		p.bind(parse(t, text))
	}
	return p
}

func (p *pair) bind(l stint.Limit) {
	r, err := p.redis.Bind(l.Name(), l)
	m, err2 := p.memory.Bind(l.Name(), l)
	if err != nil || err2 != nil {
		p.Fatalf("Bind(%v): %v, %v", l, err, err2)
	}
	p.limits = append(p.limits, mirrored{l, r, m})
}

// step does one random thing to both. In a flood, a key that is not there stands for its
// cell, which nobody resets or bans (TestBanFlood).
func (p *pair) step() {
	if p.rnd.IntN(10) == 0 { // a few steps on the scale of one limit, or time ends what they began
		p.at = p.rnd.IntN(len(p.limits))
	}
	one := p.limits[p.at]
	p.now += p.gap(one.Limit)
	picked := []mirrored{one}
	for _, i := range p.rnd.Perm(len(p.limits))[:p.rnd.IntN(4)*p.rnd.IntN(2)] {
		picked = append(picked, p.limits[i])
	}
	keys, verbs := 2, 20
	if p.flooded != nil {
		if keys, verbs = 6, 18; slices.ContainsFunc(picked, func(l mirrored) bool { return l.Ban() > 0 }) {
			return
		}
	}
	key, cost, verb := fmt.Sprint("key ", p.rnd.IntN(keys)), p.cost(one.Limit), p.rnd.IntN(verbs)
	r, m := p.layers(picked, key)
	if p.flooded != nil && verb != 0 && (verb > 3 || cost > 0) {
		p.inCells(r, m)
	}
	what := fmt.Sprintf("cost %d of %v for %q", cost, picked, key)
	switch verb {
	case 0:
		p.same(what, "refund")(p.redis.Refund(ctx, r, cost))(p.memory.Refund(ctx, m, cost))
	case 1, 2, 3:
		p.tokens = p.tokens[max(len(p.tokens)-30, 0):]
		p.reserve(what, r, m, cost)
	case 4, 5, 6:
		if n := len(p.tokens); n > 0 {
			p.settle(p.rnd.IntN(n))
		}
	case 18:
		if err, err2 := p.redis.Reset(ctx, r), p.memory.Reset(ctx, m); !errors.Is(err, err2) {
			p.Fatalf("reset: %v, %v", err, err2)
		}
	case 19:
		d := time.Duration(p.rnd.Int64N(int64(one.Period())) / microsecond * microsecond * p.rnd.Int64N(2))
		if err := errors.Join(p.redis.(stint.BlockStore).Block(ctx, r, d), p.memory.(stint.BlockStore).Block(ctx, m, d)); err != nil {
			p.Fatalf("block for %v: %v", d, err)
		}
	default:
		op := []meter.Op{meter.OpTake, meter.OpTake, meter.OpTake, meter.OpPeek, meter.OpTakeUpTo}[p.rnd.IntN(5)]
		if len(picked) == 1 && p.rnd.IntN(2) == 0 {
			p.same(what, op)(one.redis.Decide(ctx, op, key, cost))(one.memory.Decide(ctx, op, m[0].Key, cost))
		} else {
			p.same(what, op)(p.redis.Decide(ctx, op, r, cost))(p.memory.Decide(ctx, op, m, cost))
		}
	}
	for i := range r {
		for k := range r[i].Answers {
			if got, want := r[i].Answers[k], micros(m[i].Answers[k]); got != want {
				p.Fatalf("%s at %d: layer %d by itself:\n got %+v\nwant %+v", what, p.now, i, got, want)
			}
		}
	}
}

// inCells has memory hold the keys that are not in Redis to the cells that they share there.
func (p *pair) inCells(r, m []stint.Layer) {
	for i := range m {
		own := redisstore.StateOf(redisstore.Options{Prefix: p.prefix}, r[i].Key, r[i].Bound)
		if !exists(p, p.flooded, own) {
			m[i].Key = fmt.Sprint("cell ", redisstore.Slot(r[i].Key)%redisstore.Cells)
		}
	}
}

func (p *pair) layers(picked []mirrored, key string) (r, m []stint.Layer) {
	seen := make(map[string]bool)
	for _, l := range picked {
		if seen[l.Name()] {
			continue
		}
		seen[l.Name()] = true
		weight := int64(0)
		switch p.rnd.IntN(12) {
		case 0, 1:
			weight = 1 + p.rnd.Int64N(4)
		case 2:
			weight = 1 << p.rnd.IntN(4)
		}
		r = append(r, stint.Layer{Bound: l.redis, Key: key, Weight: weight, Answers: make([]stint.Decision, 1)})
		m = append(m, stint.Layer{Bound: l.memory, Key: key, Weight: weight, Answers: make([]stint.Decision, 1)})
	}
	return r, m
}

func (p *pair) same(what string, op any) func(stint.Decision, error) func(stint.Decision, error) {
	return func(got stint.Decision, err error) func(stint.Decision, error) {
		return func(want stint.Decision, err2 error) {
			p.Helper()
			if got != micros(want) || !errors.Is(err, err2) {
				p.Fatalf("%v: %s at %d:\n got %+v, %v\nwant %+v, %v", op, what, p.now, got, err, micros(want), err2)
			}
		}
	}
}

func (p *pair) reserve(what string, r, m []stint.Layer, cost int64) {
	ctx := context.Background()
	ttl := time.Duration(1 + p.rnd.Int64N(int64(time.Hour)))
	if p.rnd.IntN(8) == 0 {
		ttl = math.MaxInt64
	}
	d, id, err := p.redis.Reserve(ctx, r, cost, ttl)
	want, token2, err2 := p.memory.Reserve(ctx, m, cost, ttl)
	p.same(what, "reserve")(d, err)(want, err2)
	if d.Allowed {
		p.tokens = append(p.tokens, tokens{id, token2, cost})
	}
}

// settle settles, often at less, sometimes at more, now and then again.
func (p *pair) settle(i int) {
	t := p.tokens[i]
	cost := p.rnd.Int64N(t.cost/2+2) * p.rnd.Int64N(4)
	switch p.rnd.IntN(8) {
	case 0:
		cost = mostCost
	case 1:
		cost = t.cost
	}
	if cost < 0 {
		cost = 0
	}
	ctx := context.Background()
	p.same(fmt.Sprintf("%d for %d", cost, t.cost), "settle")(p.redis.Settle(ctx, t.redis, cost))(p.memory.Settle(ctx, t.memory, cost))
	if p.rnd.IntN(3) > 0 {
		p.tokens = append(p.tokens[:i], p.tokens[i+1:]...)
	}
}

// gap draws a stretch of time, often none, on the scale of a limit.
func (p *pair) gap(l stint.Limit) int64 {
	period := int64(l.Period())
	unit := max(period/l.Count(), 1)
	d := int64(0)
	switch p.rnd.IntN(16) {
	case 0:
		d = p.rnd.Int64N(unit + 1)
	case 1:
		d = unit
	case 2:
		d = p.rnd.Int64N(min(period, int64(48*time.Hour)) + 1)
	case 3:
		d = min(period, int64(48*time.Hour))
	case 4:
		d = period - p.now%period // to an edge
	case 5, 6, 7:
		d = p.rnd.Int64N(3) * microsecond
	case 8:
		d = p.rnd.Int64N(int64(time.Second))
	}
	if d > int64(90*24*time.Hour) || p.now > 1<<62-d {
		return 0
	}
	return (d + microsecond - 1) / microsecond * microsecond
}

// cost draws a cost, mostly small, now and then extreme.
func (p *pair) cost(l stint.Limit) int64 {
	switch p.rnd.IntN(24) {
	case 0:
		return l.Capacity()
	case 1:
		return l.Capacity()/2 + 1
	case 2:
		return 0
	case 3:
		return mostCost >> p.rnd.IntN(36)
	case 4:
		return mostCost
	}
	return 1 + p.rnd.Int64N(min(max(l.Capacity()/3, 1), 1<<p.rnd.IntN(40)))
}

// TestDifferential does hundreds of thousands of random things, of all verbs,
// kinds, layers and weights, to Redis and to memory. STINT_SOAK=1 makes them
// millions.
func TestDifferential(t *testing.T) {
	server := redistest.Start(t)
	steps := 5_000
	if race.On {
		steps /= 10
	}
	if testing.Short() {
		steps = 1_000
	}
	if os.Getenv("STINT_SOAK") != "" {
		steps = 300_000
	}
	var wg sync.WaitGroup
	for seed := range uint64(16) { // together they fill the client's pipeline
		wg.Add(1)
		go func() {
			defer wg.Done()
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				p := newPair(t, server.URL(), seed)
				for range steps {
					p.step()
				}
			})
		}()
	}
	wg.Wait()
}
