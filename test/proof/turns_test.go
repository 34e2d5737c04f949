package proof_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A turnBucket is one bucket of the definition of waiting, in rational numbers of
// nanoseconds.
type turnBucket struct {
	burst   int64
	unit    *big.Rat // T
	tat     *big.Rat
	charged bool // it has a state
}

// since returns the earliest moment at which a cost would have passed.
func (b *turnBucket) since(cost int64) *big.Rat {
	return new(big.Rat).Add(b.tat, new(big.Rat).Mul(b.unit, big.NewRat(cost-b.burst, 1)))
}

func (b *turnBucket) passes(now *big.Rat, cost int64) bool {
	return cost <= b.burst && b.since(cost).Cmp(now) <= 0
}

// charge charges a cost as of a moment.
func (b *turnBucket) charge(turn *big.Rat, cost int64) {
	if b.tat.Cmp(turn) < 0 {
		b.tat = turn
	}
	b.tat = new(big.Rat).Add(b.tat, new(big.Rat).Mul(b.unit, big.NewRat(cost, 1)))
	b.charged = true
}

// turn returns the turn of one who came to wait at a moment: not before that, nor before any
// of the buckets let it pass, rounded up to the grain of the clock in nanoseconds, nor more
// than a second ago.
func turn(buckets []*turnBucket, now, came *big.Rat, cost, grain int64) *big.Rat {
	at := new(big.Rat).Sub(now, big.NewRat(int64(time.Second), 1))
	if at.Cmp(came) < 0 {
		at = came
	}
	for _, b := range buckets {
		if !b.charged {
			return now
		}
		if since := ceil(b.since(cost), grain); len(buckets) > 1 && at.Cmp(since) < 0 {
			at = since
		}
	}
	return at
}

func ceil(x *big.Rat, grain int64) *big.Rat {
	n, d := x.Num(), new(big.Int).Mul(x.Denom(), big.NewInt(grain))
	up := new(big.Int).Add(n, new(big.Int).Sub(d, big.NewInt(1)))
	return new(big.Rat).SetInt(up.Mul(up.Div(up, d), big.NewInt(grain)))
}

// TestTurns holds the stores to the definition: a waiter passes if it passes now, and is
// charged as of its turn, under one bucket and under several. Requests that do not wait
// come between.
func TestTurns(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		for seed := range uint64(200) {
			differTurns(t, seed, 1, func(now func() int64) stint.TurnStore { return memstore.New(memstore.Options{Now: now}) })
		}
	})
	t.Run("redis", func(t *testing.T) {
		url := "unix://" + startRedis(t)
		for seed := range uint64(scaled(10, 60, 200)) {
			differTurns(t, seed, 1000, func(now func() int64) stint.TurnStore {
				store, err := redisstore.New(redisstore.Options{URL: url, Prefix: fmt.Sprint("turns", seed), Timeout: time.Minute, Now: now})
				if err != nil {
					t.Fatal(err)
				}
				return store
			})
		}
	})
}

// differTurns does the same to a store and to the definition.
func differTurns(t *testing.T, seed uint64, grain int64, open func(now func() int64) stint.TurnStore) {
	ctx := context.Background()
	random := rand.New(rand.NewPCG(seed, 46))
	span := func(most time.Duration) int64 { return random.Int64N(int64(most)) / grain * grain }
	now := int64(1_800_000_000_000_000_000)
	store := open(func() int64 { return now })
	defer func() { _ = store.Close() }()
	var limits []stint.Limit
	var buckets []*turnBucket
	// Under a slow limit, a turn that is too long ago gives back more than the bucket would have held.
	most, stride := int64(2000), 3*time.Millisecond
	if seed%2 == 1 {
		most, stride = 8, 200*time.Millisecond
	}
	for i := range 1 + random.IntN(3) {
		count, period, burst := 1+random.Int64N(most), time.Duration(1+random.Int64N(3))*time.Second, 1+random.Int64N(4)
		limits = append(limits, stint.New(count, period).WithBurst(burst).WithName(fmt.Sprint(i)))
		buckets = append(buckets, &turnBucket{burst: burst, unit: big.NewRat(int64(period), count), tat: new(big.Rat)})
	}
	bound, err := store.Bind("turns", limits...)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for step := range 400 {
		now += span(stride)
		if random.IntN(50) == 0 {
			now += span(3 * time.Second) // the caller stood still
		}
		at, cost := new(big.Rat).SetInt64(now), 1+random.Int64N(3)
		want := true
		for _, b := range buckets {
			want = want && b.passes(at, cost)
		}
		var d stint.Decision
		if random.IntN(4) == 0 {
			if d, err = bound.Decide(ctx, meter.OpTake, "a", cost); err != nil {
				t.Fatal(err)
			}
		} else {
			age := span(20 * time.Millisecond)
			if random.IntN(4) == 0 {
				age = span(5 * time.Second)
			}
			layers := []stint.Layer{{Bound: bound, Key: "a"}}
			if d, _, err = store.TakeTurn(ctx, layers, cost, 0, time.Duration(age)); err != nil {
				t.Fatal(err)
			}
			at = turn(buckets, at, new(big.Rat).SetInt64(now-age), cost, grain)
		}
		if d.Allowed != want {
			t.Fatalf("seed %d, step %d: cost %d passes: %v, want %v", seed, step, cost, d.Allowed, want)
		}
		if want {
			passed++
			for _, b := range buckets {
				b.charge(at, cost)
			}
		}
	}
	if passed < 5 {
		t.Errorf("seed %d: %d passed: little was compared", seed, passed)
	}
}
