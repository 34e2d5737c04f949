package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/proof/model"
	"pgregory.net/rapid"
)

// TestDifferential runs random requests through the embedded store and through
// the rational model, and wants the same verdict, remaining and waits.
func TestDifferential(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, memstore.Options{})
		p.bind(rapid.IntRange(1, 3).Draw(t, "limits"))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			p.step()
		}
	})
}

// pair is an engine and the model, at the same virtual time.
type pair struct {
	t      *rapid.T
	now    int64
	store  *memstore.Store
	model  *model.Model
	limits []stint.Limit
	bound  []stint.Bound
	held   []held
}

// held is a reservation on both sides.
type held struct {
	token  stint.Token
	id     int
	layers []stint.Layer
}

func newPair(t *rapid.T, o memstore.Options) *pair {
	p := &pair{t: t, model: model.New()}
	o.Now = func() int64 { return p.now }
	p.store = memstore.New(o)
	p.now = rapid.SampledFrom([]int64{0, 1, 1e9, 1763700000123456789, 1 << 61}).Draw(t, "start")
	return p
}

func (p *pair) bind(n int) {
	for i := range n {
		l := anyLimit(p.t).WithName(fmt.Sprint("l", i))
		b, err := p.store.Bind(l)
		if err != nil {
			p.t.Fatalf("%v: %v", l, err)
		}
		p.limits, p.bound = append(p.limits, l), append(p.bound, b)
	}
}

// Numbers that limits are made of: everyday ones, odd ones, and the extremes.
var (
	counts  = []int64{1, 2, 3, 5, 7, 10, 60, 100, 1000, 999_983, 1 << 31, 1 << 40, 1 << 62, math.MaxInt64}
	periods = []int64{1, 2, 3, 7, 10, 100, 1000, 999_983, 1e6, 1e9, 7e9, 60e9, 3600e9, 86400e9, 604800e9, 1 << 55, 1<<62 - 1, math.MaxInt64}
)

// anyLimit draws a limit that can be held.
func anyLimit(t *rapid.T) stint.Limit {
	for range 100 {
		if l := drawLimit(t); l.Validate() == nil && !(l.Kind() == stint.SlidingLog && l.Count() > 1_000_000) {
			return l
		}
	}
	return stint.New(7, time.Minute)
}

func drawLimit(t *rapid.T) stint.Limit {
	kind := stint.Kind(rapid.IntRange(0, int(stint.SlidingBuckets)).Draw(t, "kind"))
	few := rapid.IntRange(0, 3).Draw(t, "everyday") > 0
	cs, ps := counts, periods
	if few {
		cs, ps = counts[:9], periods[3:14]
	}
	l := stint.New(rapid.SampledFrom(cs).Draw(t, "count"), time.Duration(rapid.SampledFrom(ps).Draw(t, "period"))).WithKind(kind)
	if kind == stint.FixedWindow && rapid.IntRange(0, 3).Draw(t, "calendar") == 0 {
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Paris", "America/Sao_Paulo", "Pacific/Apia"}).Draw(t, "zone")
		if rapid.Bool().Draw(t, "month") {
			l = stint.PerMonthIn(l.Count(), zone)
		} else {
			l = stint.PerDayIn(l.Count(), zone)
		}
	}
	switch kind {
	case stint.GCRA, stint.TokenBucketInterval, stint.LeakyQueue:
		if rapid.Bool().Draw(t, "bursts") {
			l = l.WithBurst(rapid.SampledFrom(append([]int64{0}, cs...)).Draw(t, "burst"))
		}
		return l
	case stint.SlidingBuckets:
		l = l.WithParts(rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 60}).Draw(t, "parts"))
	case stint.SlidingCounter:
		if rapid.Bool().Draw(t, "relaxed") {
			l = l.WithRelaxed()
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "counting") == 0 {
		l = l.WithCountDenied()
	}
	return l
}

func spec(l stint.Limit) model.Spec {
	unit, zone := l.Calendar()
	s := model.Spec{
		Kind: l.Kind().String(), Count: l.Count(), Period: int64(l.Period()), Burst: l.Burst(),
		Parts: l.Parts(), Relaxed: l.Relaxed(), CountDenied: l.CountDenied(), Calendar: unit, Zone: zone,
	}
	if unit != "" {
		s.Period = 0
	}
	return s
}

// layers draws which limits a request is held to, and by which keys.
func (p *pair) layers() (engine []stint.Layer, reference []model.Layer) {
	first := rapid.IntRange(0, len(p.limits)-1).Draw(p.t, "first")
	n := rapid.IntRange(1, len(p.limits)-first).Draw(p.t, "layers")
	for i := first; i < first+n; i++ {
		key := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(p.t, "key")
		weight := int64(0)
		if rapid.IntRange(0, 3).Draw(p.t, "weighted") == 0 {
			most := p.limits[i].Capacity()
			weight = rapid.SampledFrom([]int64{1, 2, 3, 4, 5, 7, most/2 + 1, most, math.MaxInt64/2 + 1, math.MaxInt64}).Draw(p.t, "weight")
		}
		engine = append(engine, stint.Layer{Bound: p.bound[i], Key: key, Weight: weight, Answers: make([]stint.Decision, 1)})
		reference = append(reference, model.Layer{Name: p.limits[i].Name(), Spec: spec(p.limits[i]), Key: key, Weight: weight})
	}
	return engine, reference
}

// cost draws a cost that matters to one of the limits.
func (p *pair) cost() int64 {
	l := rapid.SampledFrom(p.limits).Draw(p.t, "for")
	most := l.Capacity()
	return rapid.SampledFrom([]int64{0, 1, 1, 1, 1, 2, 3, most / 2, most - 1, most, sat(most, 1), sat(most, most), math.MaxInt64}).Draw(p.t, "cost")
}

func sat(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// wait moves time on by a stretch that matters to one of the limits.
func (p *pair) wait() {
	l := rapid.SampledFrom(p.limits).Draw(p.t, "of")
	w := int64(l.Period())
	unit := max(w/l.Count(), 1)
	d := rapid.SampledFrom([]int64{0, 0, 0, 1, unit - 1, unit, sat(unit, 1), w / 3, w - 1, w, sat(w, 1), sat(w, w/2), sat(w, w)}).Draw(p.t, "wait")
	if p.now = sat(p.now, d); p.now > 1<<62 {
		p.now = max(p.now-d, 1<<62)
	}
}

func (p *pair) step() {
	ctx := context.Background()
	p.wait()
	switch rapid.IntRange(0, 12).Draw(p.t, "op") {
	case 7:
		layers, ref := p.layers()
		c := p.cost()
		got, err := p.store.Decide(ctx, stint.OpPeek, layers, c)
		want := p.model.Peek(p.now, ref, c)
		p.same("peek", got, err, want)
		p.alone("peek", layers, want)
	case 8:
		layers, ref := p.layers()
		c := p.cost()
		got, err := p.store.Decide(ctx, stint.OpTakeUpTo, layers, c)
		want := p.model.TakeUpTo(p.now, ref, c)
		p.same("take_up_to", got, err, want)
		if got.Taken != want.Taken {
			p.t.Fatalf("take_up_to %d: took %d, want %d", c, got.Taken, want.Taken)
		}
		p.alone("take_up_to", layers, want)
	case 9:
		p.reserve()
	case 10:
		p.settle()
	case 11:
		p.operate()
	case 12:
		p.change()
	default:
		layers, ref := p.layers()
		c := p.cost()
		p.take(layers, ref, c)
	}
}

// take goes through the handle where there is one layer of no weight, as
// limiters do.
func (p *pair) take(layers []stint.Layer, ref []model.Layer, c int64) {
	what, ctx := fmt.Sprint("take ", c), context.Background()
	want := p.model.Take(p.now, ref, c)
	if len(layers) == 1 && layers[0].Weight == 0 {
		got, err := layers[0].Bound.Decide(ctx, stint.OpTake, layers[0].Key, c)
		p.same(what, got, err, want)
		return
	}
	got, err := p.store.Decide(ctx, stint.OpTake, layers, c)
	p.same(what, got, err, want)
	p.alone(what, layers, want)
}

func (p *pair) reserve() {
	layers, ref := p.layers()
	c := p.cost()
	ttl := rapid.SampledFrom([]time.Duration{1, time.Second, time.Hour, 100 * 365 * 24 * time.Hour}).Draw(p.t, "ttl")
	got, token, err := p.store.Reserve(context.Background(), layers, c, ttl)
	want, id := p.model.Reserve(p.now, ref, c, int64(ttl))
	p.same(fmt.Sprint("reserve ", c), got, err, want)
	p.alone("reserve", layers, want)
	if id > 0 {
		p.held = append(p.held, held{token, id, layers})
	}
}

func (p *pair) settle() {
	if len(p.held) == 0 {
		return
	}
	h := rapid.SampledFrom(p.held).Draw(p.t, "reservation")
	c := p.cost()
	got, err := p.store.Settle(context.Background(), h.token, c)
	if errors.Is(err, stint.ErrReservation) { // expired or reset: nothing changes
		got, err = p.store.Decide(context.Background(), stint.OpPeek, h.layers, 0)
	}
	p.same(fmt.Sprint("settle ", c), got, err, p.model.Settle(p.now, h.id, c))
}

func (p *pair) operate() {
	layers, ref := p.layers()
	if rapid.Bool().Draw(p.t, "reset") {
		if err := p.store.Reset(context.Background(), layers); err != nil {
			p.t.Fatal(err)
		}
		p.model.Reset(p.now, ref)
		return
	}
	c := p.cost()
	got, err := p.store.Refund(context.Background(), layers, c)
	want := p.model.Refund(p.now, ref, c)
	p.same(fmt.Sprint("refund ", c), got, err, want)
	p.alone("refund", layers, want)
}

// change gives one limit other parameters.
func (p *pair) change() {
	i := rapid.IntRange(0, len(p.limits)-1).Draw(p.t, "changed")
	old := p.limits[i]
	next := anyLimit(p.t)
	if unit, _ := next.Calendar(); rapid.IntRange(0, 3).Draw(p.t, "kept") > 0 && unit == "" {
		if kept := next.WithKind(old.Kind()); kept.Validate() == nil && (old.Kind() != stint.SlidingLog || next.Count() < 1_000_000) {
			next = kept
		}
	}
	next = next.WithName(old.Name())
	if _, err := p.store.Bind(next); err != nil {
		p.t.Fatalf("%v: %v", next, err)
	}
	p.model.Change(p.now, old.Name(), spec(old), spec(next))
	p.limits[i] = next
}

// alone compares what each limit says by itself.
func (p *pair) alone(what string, layers []stint.Layer, want model.Answer) {
	p.t.Helper()
	for i, l := range layers {
		got := l.Answers[0]
		p.same(fmt.Sprintf("%s, limit %d alone, weight %d", what, i, l.Weight), got, nil, want.Alone[i])
		if got.Taken != want.Alone[i].Taken {
			p.t.Fatalf("%s: limit %d took %d, want %d", what, i, got.Taken, want.Alone[i].Taken)
		}
	}
}

// same compares the engine's answer with the model's.
func (p *pair) same(what string, got stint.Decision, err error, want model.Answer) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("at %d, %s: %v", p.now, what, err)
	}
	var denied stint.Mask
	for _, i := range want.DeniedBy {
		denied |= 1 << i
	}
	retry := stint.Never
	if want.RetryAfter != nil {
		retry = stint.Wait(held63(want.RetryAfter))
	}
	ok := got.Allowed == want.Allowed && got.Limit == want.Limit && got.Remaining == want.Remaining &&
		got.RetryAfter == retry && int64(got.ResetAfter) == held63(want.ResetAfter) &&
		int64(got.Delay) == held63(want.Delay) && got.Denied == denied
	if !ok {
		p.t.Fatalf("at %d, %s under %v:\n got %+v\nwant %+v", p.now, what, p.limits, got, want)
	}
}

// held63 is how the engine holds a wait that no duration can.
func held63(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}
