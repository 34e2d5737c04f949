package model_test

import (
	"context"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/simulate"
	"github.com/stint-dev/stint/test/proof/model"
)

// TestVectors runs the vectors that every store is held to against the model
// itself: what it is compared with must be right first.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../../../storetest/vectors/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			clock := new(simulate.Clock)
			found, err := simulate.RunVectors(store{model.New(), clock}, clock, time.Nanosecond, f)
			for _, m := range found {
				t.Error(m)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// store is the model as a store, for the runner of the vectors.
type store struct {
	*model.Model
	clock *simulate.Clock
}

// bound is limits that a store knows.
type bound struct {
	store  store
	name   string
	limits []stint.Limit
}

func (s store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	return bound{s, name, limits}, nil
}
func (s store) Close() error          { return nil }
func (b bound) Name() string          { return b.name }
func (b bound) Limits() []stint.Limit { return b.limits }

func (b bound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	return b.store.Decide(ctx, op, []stint.Layer{{Bound: b, Key: key}}, cost)
}

func (b bound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

func (s store) Decide(_ context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	decide := s.Take
	switch op {
	case meter.OpPeek:
		decide = s.Peek
	case meter.OpTakeUpTo:
		decide = s.TakeUpTo
	}
	return decision(decide(s.clock.Now(), flat(layers), cost)), nil
}

func (s store) Reserve(_ context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	a, id := s.Model.Reserve(s.clock.Now(), flat(layers), cost, int64(ttl))
	return decision(a), stint.ReservationID(strconv.Itoa(id)), nil
}

func (s store) Settle(_ context.Context, reservation stint.ReservationID, cost int64) (stint.Decision, error) {
	id, err := strconv.Atoi(string(reservation))
	if err != nil {
		return stint.Decision{}, stint.ErrReservation
	}
	return decision(s.Model.Settle(s.clock.Now(), id, cost)), nil
}

func (s store) Refund(_ context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	return decision(s.Model.Refund(s.clock.Now(), flat(layers), cost)), nil
}

func (s store) Reset(_ context.Context, layers []stint.Layer) error {
	s.Model.Reset(s.clock.Now(), flat(layers))
	return nil
}

// flat lists the layers of the model.
func flat(layers []stint.Layer) []model.Layer {
	var all []model.Layer
	for _, layer := range layers {
		for _, l := range layer.Bound.Limits() {
			all = append(all, model.Layer{Name: layer.Bound.Name(), ID: l.ID(), Spec: specOf(l), Key: layer.Key, Excuses: int64(layer.Excuses)})
		}
	}
	return all
}

func specOf(l stint.Limit) model.Spec {
	unit, zone := l.Calendar()
	s := model.Spec{
		Kind: l.Algorithm().String(), Count: l.Count(), Period: int64(l.Period()), Burst: l.Burst(), Debt: l.Debt(), Ban: int64(l.Ban()),
		Parts: l.Parts(), Relaxed: l.Relaxed(), CountDenied: l.CountDenied(), FromFirst: l.FromFirst(), Calendar: unit, Zone: zone,
	}
	if unit != "" {
		s.Period = 0
	}
	return s
}

// decision is the model's answer as a store would give it.
func decision(a model.Answer) stint.Decision {
	d := stint.Decision{
		Allowed: a.Allowed, Limit: a.Limit, Remaining: a.Remaining, Tightest: a.Tightest, Taken: a.Taken, Banned: a.Banned, RetryAfter: stint.Never,
		ResetAfter: time.Duration(held(a.ResetAfter)), Delay: time.Duration(held(a.Delay)),
	}
	if a.RetryAfter != nil {
		d.RetryAfter = stint.Wait(held(a.RetryAfter))
	}
	for _, i := range a.DeniedBy {
		d.Denied |= 1 << i
	}
	return d
}

// held is a wait at most as long as a duration can be.
func held(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}
