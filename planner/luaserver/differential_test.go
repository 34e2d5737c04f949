package luaserver_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/planner/luaserver"
	"github.com/stint-dev/stint/planner/nodes"
)

// texts is every kind, with ratios that do not divide, every option and nearly the
// greatest numbers.
var texts = []string{
	"5/s", "10/s burst 20", "7/1m", "3/1us", "10/100ns", "1_000_000_000_000_000/1s", "1/100000h", "1000/s burst 400",
	"5/s burst 10 token_bucket_interval", "3/15us burst 7 token_bucket_interval", "1_000_000_000_000_000/1h token_bucket_interval",
	"5/s burst 10 leaky_queue", "7/1m burst 3 leaky_queue", "1_000_000_000_000_000/1s leaky_queue burst 999_999_999_999_999",
	"5/s fixed_window", "7/1m fixed_window count_denied", "1_000_000_000_000_000/1h fixed_window count_denied",
	"6 per day in Europe/Paris", "9 per month in UTC",
	"5/s sliding_log", "4/1m sliding_log count_denied", "300/10s sliding_log", "2000/10s sliding_log", "5/25us sliding_log",
	"10/1m sliding_counter", "7/10s sliding_counter count_denied", "4/33us sliding_counter relaxed", "1_000_000_000_000_000/1h sliding_counter",
	"10/1m sliding_buckets", "9/10s sliding_buckets parts 3 count_denied", "50/1h sliding_buckets parts 3600", "1_000_000_000_000_000/1h sliding_buckets count_denied",
}

// A pair is two stores that are to answer alike, on one virtual clock of whole
// microseconds.
type pair struct {
	testing.TB
	now    int64
	rnd    *rand.Rand
	stores [2]stint.Store
	limits [2][]stint.Bound
	tokens [][2]stint.ReservationID
	round  bool           // the second has a clock of nanoseconds
	hot    stint.Decision // of the first store, in TestModes
}

func (p *pair) clock() int64 { return p.now }

// bind binds limits in both stores.
func (p *pair) bind(texts []string) {
	for _, text := range texts {
		limit, err := stint.Parse(text)
		if err != nil {
			p.Fatal(err)
		}
		for i, s := range p.stores {
			b, err := s.Bind(limit.Name(), limit)
			if err != nil {
				p.Fatalf("%s: %v", text, err)
			}
			p.limits[i] = append(p.limits[i], b)
		}
	}
}

// draw returns a number from 0 to most, of any size, and now and then a large one:
// counts in Redis stop at 2^53.
func (p *pair) draw(most int64) int64 {
	switch p.rnd.IntN(24) {
	case 0:
		return most
	case 1:
		return 1 << p.rnd.IntN(39)
	}
	return p.rnd.Int64N(min(max(most/3, 1), 1<<p.rnd.IntN(40)) + 1)
}

// step does one random thing to both stores: to one limit, or to several.
func (p *pair) step() {
	order := p.rnd.Perm(len(p.limits[0]))[:1+p.rnd.IntN(4)*p.rnd.IntN(2)]
	limit := p.limits[0][order[0]].Limits()[0]
	span := min(int64(limit.Period()), int64(48*time.Hour))
	gap := []int64{0, 0, 0, p.rnd.Int64N(3000), span, p.rnd.Int64N(span + 1), min(int64(limit.Period())/limit.Count()+1, span), p.rnd.Int64N(1e9)}[p.rnd.IntN(8)]
	p.now += (gap + 999) / 1000 * 1000
	cost, key, verb := p.draw(limit.Capacity()), fmt.Sprint("key ", p.rnd.IntN(2)), p.rnd.IntN(32)
	ttl, token := time.Duration(1+p.rnd.Int64N(int64(time.Hour))), p.rnd.IntN(len(p.tokens)+1)
	var layers [2][]stint.Layer
	for _, at := range order {
		weight := int64(0)
		if p.rnd.IntN(5) == 0 {
			weight = p.draw(4)
		}
		for i := range layers {
			layers[i] = append(layers[i], stint.Layer{Bound: p.limits[i][at], Key: key, Weight: weight, Answers: make([]stint.Decision, 1)})
		}
	}
	var answers [2]stint.Decision
	var errs [2]error
	var made [2]stint.ReservationID
	for i, s := range p.stores {
		switch {
		case verb == 0:
			answers[i], errs[i] = s.Refund(ctx, layers[i], cost)
		case verb == 1:
			errs[i] = s.Reset(ctx, layers[i])
		case verb < 7:
			answers[i], made[i], errs[i] = s.Reserve(ctx, layers[i], cost, ttl)
		case verb < 12 && token < len(p.tokens):
			answers[i], errs[i] = s.Settle(ctx, p.tokens[token][i], cost)
		default:
			op := []meter.Op{meter.OpTake, meter.OpTake, meter.OpTake, meter.OpPeek, meter.OpTakeUpTo}[verb%5]
			answers[i], errs[i] = s.Decide(ctx, op, layers[i], cost)
		}
	}
	if p.tell(answers[0]) != p.tell(answers[1]) || !errors.Is(errs[0], errs[1]) {
		p.Fatalf("%d: verb %d, cost %d of %v in %v:\n got %+v, %v\nwant %+v, %v", p.now, verb, cost, layers[0], limit, answers[0], errs[0], answers[1], errs[1])
	}
	for k := range layers[0] {
		if got, want := layers[0][k].Answers[0], layers[1][k].Answers[0]; p.tell(got) != p.tell(want) {
			p.Fatalf("%d: layer %d by itself:\n got %+v\nwant %+v", p.now, k, got, want)
		}
	}
	if made[0] != "" {
		p.tokens = append(p.tokens[max(len(p.tokens)-20, 0):], made)
	}
}

// tell returns an answer to compare.
func (p *pair) tell(d stint.Decision) stint.Decision {
	if !p.round {
		return d
	}
	up := func(d time.Duration) time.Duration {
		if d > math.MaxInt64-time.Microsecond {
			return d
		}
		return (d + time.Microsecond - 1).Truncate(time.Microsecond)
	}
	if wait, ok := d.RetryAfter.Duration(); ok {
		d.RetryAfter = stint.Wait(up(wait))
	}
	d.ResetAfter, d.Delay = up(d.ResetAfter), up(d.Delay)
	return d
}

// TestDifferential does random things of all kinds, verbs, layers, weights and
// extremes to the script and to the store in memory.
func TestDifferential(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := &pair{TB: t, now: []int64{0, 1_750_000_000_123_456_000}[seed%2], rnd: rand.New(rand.NewPCG(seed, 4)), round: true}
			server := luaserver.New()
			defer server.Close()
			p.stores = [2]stint.Store{open(t, server, p.clock), memstore.New(memstore.Options{Now: p.clock})}
			p.bind(texts)
			for range steps(10_000) {
				p.step()
			}
			if server.Calls() < int64(steps(5000)) {
				t.Errorf("%d calls", server.Calls())
			}
		})
	}
}

// TestLongLog fills logs with hundreds of entries, of which the script reads and
// writes parts.
func TestLongLog(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	p := &pair{TB: t, now: 1_750_000_000_123_456_000, rnd: rand.New(rand.NewPCG(6, 6)), round: true}
	server := luaserver.New()
	defer server.Close()
	p.stores = [2]stint.Store{open(t, server, p.clock), memstore.New(memstore.Options{Now: p.clock})}
	p.bind([]string{"1500/10s sliding_log", "400/1m sliding_log"})
	for range steps(10_000) {
		p.now += p.rnd.Int64N(20_000) * 1000
		limit, cost := p.rnd.IntN(2), 1+p.rnd.Int64N(3)*p.rnd.Int64N(2)
		op := []meter.Op{meter.OpTake, meter.OpTake, meter.OpTake, meter.OpPeek, meter.OpTakeUpTo}[p.rnd.IntN(5)]
		got, err := p.limits[0][limit].Decide(ctx, op, "k", cost)
		want, err2 := p.limits[1][limit].Decide(ctx, op, "k", cost)
		if err != nil || err2 != nil || p.tell(got) != p.tell(want) {
			t.Fatalf("%d: %v %d of limit %d:\n got %+v, %v\nwant %+v, %v", p.now, op, cost, limit, got, err, want, err2)
		}
	}
}

// TestModes plays four nodes in each mode, on a real server and on the one in
// the process: the same answers to the same things.
func TestModes(t *testing.T) {
	client := startRedis(t)
	for _, mode := range []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async} {
		t.Run(mode.String(), func(t *testing.T) {
			p := &pair{TB: t, now: 1_750_000_000_123_456_000, rnd: rand.New(rand.NewPCG(4, 4))}
			server := luaserver.New()
			defer server.Close()
			for i, o := range []redisstore.Options{{Driver: server}, {Client: client, Prefix: mode.String()}} {
				o.Now, o.Timeout = p.clock, time.Minute
				var each []stint.Store
				for range 4 {
					store, err := redisstore.New(o)
					if err != nil {
						t.Fatal(err)
					}
					each = append(each, store.Mode(mode))
				}
				p.stores[i] = nodes.New(each, nil)
				defer p.stores[i].Close()
			}
			p.bind(append([]string{"10000/s burst 2000", "7000/3s burst 1111"}, texts...))
			for range steps(6_000) {
				p.step()
			}
			before := server.Calls()
			// demand on one key, as much as lets nodes take ahead
			for range 20_000 {
				p.now += p.rnd.Int64N(200) * 1000
				for i := range p.stores {
					d, err := p.limits[i][0].Decide(ctx, meter.OpTake, "hot", 1)
					if err != nil {
						t.Fatal(err)
					}
					if i == 1 && d != p.hot {
						t.Fatalf("%d:\n got %+v\nwant %+v", p.now, p.hot, d)
					}
					p.hot = d
				}
			}
			if calls := server.Calls() - before; mode == redisstore.Strict && calls != 20_000 || mode != redisstore.Strict && calls > 4_000 {
				t.Errorf("%d calls for 20000 requests", calls)
			}
		})
	}
}
