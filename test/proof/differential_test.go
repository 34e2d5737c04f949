package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/test/proof/model"
	"pgregory.net/rapid"
)

// TestDifferential runs random requests through the embedded store and through
// the rational model, and wants the same verdict, remaining and waits.
func TestDifferential(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newDifferential(t, 1).run(40) })
}

// TestDifferentialReservations is TestDifferential with many reservations open
// at once, settled in any order, among takes on the same few keys.
func TestDifferentialReservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDifferential(t, 1)
		d.reserving = true
		d.run(120)
	})
}

// A differential does the same to each store and to the model, at the same
// virtual time.
type differential struct {
	t      *rapid.T
	now    int64
	tick   int64 // of the clock, in ns
	stores []*column
	redis  *redisColumn // one of the stores, or nil
	model  *model.Model
	limits []stint.Limit
	had    map[int][]stint.Limit // what each was before
	held   []held
	ever   []request // that were reserved
	lists  *lists    // or nil: of limits that have one name

	reserving bool // most operations reserve and settle
}

// A column is one store of a differential.
type column struct {
	name    string
	store   stint.Store
	quantum int64 // of its waits, in ns
	bound   []stint.Bound
	kept    []stint.Bound // of limits that were in force, which stay known
}

// A request is layers: what they are to each store, and to the model.
type request struct {
	columns   [][]stint.Layer
	reference []model.Layer
}

// held is a reservation: its ID in each store and its id in the model.
type held struct {
	request
	ids []stint.ReservationID
	id  int
}

// newDifferential holds the embedded store to the model.
func newDifferential(t *rapid.T, tick int64) *differential {
	d := &differential{t: t, tick: tick, model: model.New(), had: map[int][]stint.Limit{}}
	memory := memstore.New(memstore.Options{Now: func() int64 { return d.now }})
	d.stores = []*column{{name: "memory", store: memory, quantum: 1}}
	return d
}

// run takes up to the given number of steps under one to three limits.
func (d *differential) run(steps int) {
	start := rapid.SampledFrom([]int64{0, 1, 1e9, 1763700000123456789, 1 << 61}).Draw(d.t, "start")
	d.now = start - start%d.tick
	for i := range rapid.IntRange(1, 3).Draw(d.t, "limits") {
		d.bind(i)
	}
	for range rapid.IntRange(1, steps).Draw(d.t, "steps") {
		d.step()
	}
}

func (d *differential) bind(i int) {
	name := fmt.Sprint("l", i)
	if d.redis != nil {
		name = d.redis.name(i)
	}
	l := d.anyLimit().WithName(name)
	for _, s := range d.stores {
		b, err := s.store.Bind(l.Name(), l)
		if err != nil {
			d.t.Fatalf("%s: %v: %v", s.name, l, err)
		}
		s.bound = append(s.bound, b)
	}
	d.limits = append(d.limits, l)
}

// anyLimit draws a limit that every store can hold.
func (d *differential) anyLimit() stint.Limit {
	for {
		if l := anyLimit(d.t); d.redis == nil || d.redis.holds(d.t, l) {
			return l
		}
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
		if l := drawLimit(t); l.Validate() == nil && !(l.Algorithm() == meter.SlidingLog && l.Count() > 1_000_000) {
			return l
		}
	}
	return stint.New(7, time.Minute)
}

func drawLimit(t *rapid.T) stint.Limit {
	kind := meter.Algorithm(rapid.IntRange(0, len(meter.Algorithms())-1).Draw(t, "kind"))
	few := rapid.IntRange(0, 3).Draw(t, "everyday") > 0
	cs, ps := counts, periods
	if few {
		cs, ps = counts[:9], periods[3:14]
	}
	l := stint.New(rapid.SampledFrom(cs).Draw(t, "count"), time.Duration(rapid.SampledFrom(ps).Draw(t, "period"))).WithAlgorithm(kind)
	if kind.Takes(meter.ByCalendar) && rapid.IntRange(0, 3).Draw(t, "calendar") == 0 {
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Paris", "America/Sao_Paulo", "Pacific/Apia"}).Draw(t, "zone")
		l = stint.PerIn(l.Count(), rapid.SampledFrom(calendarUnits).Draw(t, "unit"), zone)
	} else if kind.Takes(meter.FromFirst) && rapid.Bool().Draw(t, "from first") {
		l = l.WithFromFirst()
	}
	switch {
	case kind.Takes(meter.Burst):
		if rapid.Bool().Draw(t, "bursts") {
			l = l.WithBurst(rapid.SampledFrom(append([]int64{0}, cs...)).Draw(t, "burst"))
		}
		if rapid.IntRange(0, 3).Draw(t, "deeper") == 0 {
			l = l.WithDebt(rapid.SampledFrom(cs).Draw(t, "debt"))
		}
	case kind.Takes(meter.Parts):
		l = l.WithParts(rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 60}).Draw(t, "parts"))
	case kind.Takes(meter.Relaxed):
		if rapid.Bool().Draw(t, "relaxed") {
			l = l.WithRelaxed()
		}
	}
	if kind.Takes(meter.CountDenied) && rapid.IntRange(0, 2).Draw(t, "counting") == 0 {
		l = l.WithCountDenied()
	}
	return banning(t, l)
}

var calendarUnits = []meter.CalendarUnit{meter.Day, meter.Day, meter.Month, meter.Week, meter.Quarter, meter.Year, meter.MonthFrom(15), meter.MonthFrom(30), meter.MonthFrom(31)}

// banning gives some limits a ban: one that ends before the state is unused again, and
// one that ends after it.
func banning(t *rapid.T, l stint.Limit) stint.Limit {
	ban := rapid.SampledFrom([]time.Duration{0, 0, 0, 0, l.Period() / 3, 2 * l.Period(), 1, time.Minute}).Draw(t, "ban")
	if ban <= 0 || ban > meter.MaxBan {
		return l
	}
	return l.WithBan(ban)
}

func spec(l stint.Limit) model.Spec {
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

// layers draws which limits a request is held to, and by which keys.
func (d *differential) layers() (r request) {
	if d.lists != nil {
		return d.lists.layers(d)
	}
	first := rapid.IntRange(0, len(d.limits)-1).Draw(d.t, "first")
	n := rapid.IntRange(1, len(d.limits)-first).Draw(d.t, "layers")
	for i := first; i < first+n; i++ {
		key := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(d.t, "key")
		weight := int64(0)
		if rapid.IntRange(0, 3).Draw(d.t, "weighted") == 0 {
			most := d.limits[i].Capacity()
			weight = rapid.SampledFrom([]int64{1, 2, 3, 4, 5, 7, most/2 + 1, most, math.MaxInt64/2 + 1, math.MaxInt64}).Draw(d.t, "weight")
			if d.redis != nil {
				weight = min(weight, mostWeightRedis)
			}
		}
		d.layer(&r, i, key, weight)
	}
	return r
}

// layer adds a limit to a request.
func (d *differential) layer(r *request, i int, key string, weight int64) {
	if r.columns == nil {
		r.columns = make([][]stint.Layer, len(d.stores))
	}
	excuses := time.Duration(0)
	if k := d.limits[i].Algorithm(); d.redis == nil || k != meter.SlidingLog && k != meter.SlidingSubWindows { // a refund takes part there
		excuses = rapid.SampledFrom([]time.Duration{0, 0, time.Second, 10 * time.Second, time.Hour}).Draw(d.t, "excuses")
	}
	for c, s := range d.stores {
		r.columns[c] = append(r.columns[c], stint.Layer{Bound: s.bound[i], Key: key, Weight: weight, Excuses: excuses, Answers: make([]stint.Decision, 1)})
	}
	r.reference = append(r.reference, model.Layer{Name: d.limits[i].Name(), Spec: spec(d.limits[i]), Key: key, Weight: weight, Excuses: int64(excuses)})
}

// cost draws a cost that matters to one of the limits.
func (d *differential) cost() int64 {
	l := rapid.SampledFrom(d.limits).Draw(d.t, "for")
	most := l.Capacity()
	c := rapid.SampledFrom([]int64{0, 1, 1, 1, 1, 2, 3, most / 2, most - 1, most, sat(most, 1), sat(most, most), math.MaxInt64}).Draw(d.t, "cost")
	if d.redis != nil {
		c = min(c, mostCostRedis)
	}
	return c
}

// In Redis counts stop at 2^53: no more than that is charged.
const (
	mostCostRedis   = 1 << 41
	mostWeightRedis = 16
)

func sat(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// wait moves time on by a stretch that matters to one of the limits, in whole
// ticks of the clock.
func (d *differential) wait() {
	l := rapid.SampledFrom(d.limits).Draw(d.t, "of")
	w, tick := int64(l.Period()), d.tick
	unit := max(w/l.Count(), 1)
	by := rapid.SampledFrom([]int64{0, 0, 0, tick, unit - tick, unit, sat(unit, tick), w / 3, w - tick, w, sat(w, tick), sat(w, w/2), sat(w, w)}).Draw(d.t, "wait")
	by = sat(max(by, 0), tick-1)
	by -= by % tick
	if now := sat(d.now, by); now <= 1<<62 {
		d.now = now
	}
}

func (d *differential) step() {
	if d.redis != nil {
		d.redis.saw.operation()
	}
	d.wait()
	op := rapid.IntRange(0, 12).Draw(d.t, "op")
	if d.reserving && op < 6 {
		op = 9 + op/2%2 // reserve or settle
	}
	switch op {
	case 7:
		d.peek()
	case 8:
		d.takeUpTo()
	case 9:
		d.reserve(d.layers(), d.cost())
	case 10:
		if len(d.held) > 0 {
			d.settle(d.held[rapid.IntRange(0, len(d.held)-1).Draw(d.t, "reservation")], d.cost())
		}
	case 11:
		d.operate()
	case 12:
		d.change()
	default:
		d.take()
	}
}

// take goes through the handle where there is one layer of no weight, as
// limiters do.
func (d *differential) take() {
	r, c := d.layers(), d.cost()
	want, ctx := d.model.Take(d.now, r.reference, c), context.Background()
	direct := len(r.reference) == 1 && r.reference[0].Weight == 0
	d.each(fmt.Sprint("take ", c), want, func(i int, s *column) (stint.Decision, error) {
		if l := r.columns[i]; direct {
			return l[0].Bound.Decide(ctx, meter.OpTake, l[0].Key, c)
		}
		return s.store.Decide(ctx, meter.OpTake, r.columns[i], c)
	})
	if !direct {
		d.alone("take", r, want)
	}
	if d.redis != nil {
		d.redis.saw.take(r, want)
	}
}

func (d *differential) peek() {
	r, c := d.layers(), d.cost()
	want := d.model.Peek(d.now, r.reference, c)
	d.each(fmt.Sprint("peek ", c), want, func(i int, s *column) (stint.Decision, error) {
		return s.store.Decide(context.Background(), meter.OpPeek, r.columns[i], c)
	})
	d.alone("peek", r, want)
}

func (d *differential) takeUpTo() {
	r, c := d.layers(), d.cost()
	want := d.model.TakeUpTo(d.now, r.reference, c)
	d.each(fmt.Sprint("take_up_to ", c), want, func(i int, s *column) (stint.Decision, error) {
		got, err := s.store.Decide(context.Background(), meter.OpTakeUpTo, r.columns[i], c)
		if got.Taken != want.Taken {
			d.t.Fatalf("%s: take_up_to %d: took %d, want %d", s.name, c, got.Taken, want.Taken)
		}
		return got, err
	})
	d.alone("take_up_to", r, want)
}

func (d *differential) reserve(r request, c int64) {
	ttl := rapid.SampledFrom([]time.Duration{1, time.Second, time.Hour, 100 * 365 * 24 * time.Hour}).Draw(d.t, "ttl")
	want, id := d.model.Reserve(d.now, r.reference, c, int64(ttl))
	h := held{r, make([]stint.ReservationID, len(d.stores)), id}
	d.each(fmt.Sprint("reserve ", c), want, func(i int, s *column) (got stint.Decision, err error) {
		got, h.ids[i], err = s.store.Reserve(context.Background(), r.columns[i], c, ttl)
		return got, err
	})
	d.alone("reserve", r, want)
	if id == 0 {
		return
	}
	d.held, d.ever = append(d.held, h), append(d.ever, r)
}

func (d *differential) settle(h held, c int64) {
	want, ctx := d.model.Settle(d.now, h.id, c), context.Background()
	d.each(fmt.Sprint("settle ", c), want, func(i int, s *column) (stint.Decision, error) {
		got, err := s.store.Settle(ctx, h.ids[i], c)
		if errors.Is(err, stint.ErrReservation) { // expired or reset: nothing changes
			return s.store.Decide(ctx, meter.OpPeek, h.columns[i], 0)
		}
		return got, err
	})
}

func (d *differential) operate() {
	r, ctx := d.layers(), context.Background()
	switch rapid.SampledFrom([]string{"reset", "refund", "block"}).Draw(d.t, "what") {
	case "block":
		d.block(r)
		return
	case "reset":
		if d.redis != nil && (slices.ContainsFunc(d.ever, r.leavesOpen) || slices.ContainsFunc(r.reference, d.knewOther)) {
			return
		}
		d.model.Reset(d.now, r.reference)
		for _, l := range r.reference {
			for _, former := range d.former(l) {
				d.model.Reset(d.now, []model.Layer{former})
			}
		}
		for i, s := range d.stores {
			if err := s.store.Reset(ctx, r.columns[i]); err != nil {
				d.t.Fatalf("%s: %v", s.name, err)
			}
		}
		return
	}
	c := d.cost()
	want := d.model.Refund(d.now, r.reference, c)
	d.each(fmt.Sprint("refund ", c), want, func(i int, s *column) (stint.Decision, error) {
		return s.store.Refund(ctx, r.columns[i], c)
	})
	d.alone("refund", r, want)
}

// block bans keys, or ends their bans.
func (d *differential) block(r request) {
	period := rapid.SampledFrom(d.limits).Draw(d.t, "like").Period()
	length := rapid.SampledFrom([]time.Duration{0, 1, time.Duration(d.tick), period / 3, period, 2 * period, time.Minute, meter.MaxBan}).Draw(d.t, "length")
	length = min(max(length, 0), meter.MaxBan)
	d.model.Block(d.now, r.reference, int64(length))
	for i, s := range d.stores {
		if err := s.store.(stint.BlockStore).Block(context.Background(), r.columns[i], length); err != nil {
			d.t.Fatalf("%s: %v", s.name, err)
		}
	}
}

// former returns a layer with what the limit of its name has been, or is in other lists.
func (d *differential) former(of model.Layer) (all []model.Layer) {
	for i, l := range d.limits {
		for _, before := range d.had[i] {
			if l.Name() == of.Name {
				all = append(all, model.Layer{Name: of.Name, Spec: spec(before), Key: of.Key})
			}
		}
		if d.lists != nil {
			all = append(all, model.Layer{Name: of.Name, ID: l.Name(), Spec: spec(l), Key: of.Key})
		}
	}
	return all
}

// knewOther reports whether the name of a layer has had another identity, which a reset
// in Redis leaves.
func (d *differential) knewOther(l model.Layer) bool {
	for i, now := range d.limits {
		other := func(before stint.Limit) bool { return before.ID() != now.ID() }
		if now.Name() == l.Name && slices.ContainsFunc(d.had[i], other) {
			return true
		}
	}
	return false
}

// leavesOpen reports whether to reset these would end a reservation that has a log beside
// them, or excuses denials there: in Redis that does not learn of it, and goes on as while
// the reservation is open.
func (r request) leavesOpen(of request) bool {
	among := func(l model.Layer) bool {
		return slices.ContainsFunc(r.reference, func(o model.Layer) bool { return o.Name == l.Name && o.Key == l.Key })
	}
	return slices.ContainsFunc(of.reference, among) &&
		slices.ContainsFunc(of.reference, func(l model.Layer) bool { return (l.Spec.Kind == model.Log || l.Excuses > 0) && !among(l) })
}

// change replaces a limit by one that it was before, or a new one, mostly of the same
// identity.
func (d *differential) change() {
	if d.lists != nil {
		d.lists.restart(d)
		return
	}
	if d.redis != nil && !d.redis.changes {
		return // Redis rounds what is in use to another quantum than memory
	}
	i := rapid.IntRange(0, len(d.limits)-1).Draw(d.t, "changed")
	old := d.limits[i]
	next := d.anyLimit().WithName(old.Name())
	if rapid.IntRange(0, 3).Draw(d.t, "kept") > 0 {
		if alike := d.alike(old); alike.Validate() == nil && (d.redis == nil || d.redis.holds(d.t, alike)) {
			next = alike
		}
	}
	if had := d.had[i]; len(had) > 0 && rapid.Bool().Draw(d.t, "back") {
		next = rapid.SampledFrom(had).Draw(d.t, "to")
	}
	if d.redis != nil {
		d.redis.saw.change()
	}
	for _, s := range d.stores {
		b, err := s.store.Bind(next.Name(), next)
		if err != nil {
			d.t.Fatalf("%s: %v: %v", s.name, next, err)
		}
		s.bound[i], s.kept = b, append(s.kept, s.bound[i])
	}
	d.had[i] = append(d.had[i], old)
	d.limits[i] = next
}

// alike draws a limit of the same identity.
func (d *differential) alike(old stint.Limit) stint.Limit {
	some := append([]int64{old.Count(), old.Count() + 1, old.Burst()}, counts[:9]...)
	count := max(rapid.SampledFrom(some).Draw(d.t, "count"), 1)
	l := stint.New(count, old.Period()).WithAlgorithm(old.Algorithm())
	if unit, zone := old.Calendar(); unit != "" {
		var err error
		if l, err = stint.Parse(fmt.Sprintf("%d/%s in %s", count, unit, zone)); err != nil {
			d.t.Fatal(err)
		}
	}
	if old.FromFirst() {
		l = l.WithFromFirst()
	}
	switch {
	case l.Algorithm().Takes(meter.Burst):
		l = l.WithBurst(rapid.SampledFrom(some).Draw(d.t, "burst"))
		if rapid.IntRange(0, 2).Draw(d.t, "deeper") == 0 {
			l = l.WithDebt(max(rapid.SampledFrom(some).Draw(d.t, "debt"), 1))
		}
	case l.Algorithm().Takes(meter.Parts):
		l = l.WithParts(old.Parts())
	case l.Algorithm().Takes(meter.Relaxed) && rapid.Bool().Draw(d.t, "relaxed"):
		l = l.WithRelaxed()
	}
	if l.Algorithm().Takes(meter.CountDenied) && rapid.IntRange(0, 2).Draw(d.t, "counting") == 0 {
		l = l.WithCountDenied()
	}
	return banning(d.t, l).WithName(old.Name())
}

// each compares the answer of each store with the model's, and what they say
// they took with one another.
func (d *differential) each(what string, want model.Answer, ask func(int, *column) (stint.Decision, error)) {
	d.t.Helper()
	var taken int64
	for i, s := range d.stores {
		got, err := ask(i, s)
		d.same(s, what, got, err, want)
		if i > 0 && got.Taken != taken {
			d.t.Fatalf("at %d, %s under %v: %s took %d, not %d", d.now, what, d.limits, s.name, got.Taken, taken)
		}
		taken = got.Taken
	}
}

// alone compares what each limit of a request says by itself.
func (d *differential) alone(what string, r request, want model.Answer) {
	d.t.Helper()
	for c, s := range d.stores {
		var answers []stint.Decision
		for _, l := range r.columns[c] {
			answers = append(answers, l.Answers...)
		}
		for i, got := range answers {
			d.same(s, fmt.Sprintf("%s, limit %d alone, weight %d", what, i, r.reference[i].Weight), got, nil, want.Alone[i])
			if got.Taken != want.Alone[i].Taken {
				d.t.Fatalf("%s: limit %d took %d, want %d", s.name, i, got.Taken, want.Alone[i].Taken)
			}
		}
	}
}

// same compares a store's answer with the model's.
func (d *differential) same(s *column, what string, got stint.Decision, err error, want model.Answer) {
	d.t.Helper()
	if err != nil {
		d.t.Fatalf("at %d, %s: %s: %v", d.now, what, s.name, err)
	}
	var denied stint.LimitSet
	for _, i := range want.DeniedBy {
		denied |= 1 << i
	}
	retry := stint.Never
	if want.RetryAfter != nil {
		retry = stint.Wait(s.held63(want.RetryAfter))
	}
	ok := got.Allowed == want.Allowed && got.Banned == want.Banned && got.Limit == want.Limit && got.Remaining == want.Remaining && got.Tightest == want.Tightest &&
		got.RetryAfter == retry && int64(got.ResetAfter) == s.held63(want.ResetAfter) &&
		int64(got.Delay) == s.held63(want.Delay) && got.Denied == denied
	if !ok {
		d.t.Fatalf("at %d, %s under %v: %s:\n got %+v\nwant %+v", d.now, what, d.limits, s.name, got, want)
	}
}

// held63 is how the store holds a wait: rounded up to its quantum, and no longer
// than a duration can be.
func (s *column) held63(n *big.Int) int64 {
	quantum := big.NewInt(s.quantum)
	up := new(big.Int).Add(n, big.NewInt(s.quantum-1))
	up.Quo(up, quantum)
	return held63(up.Mul(up, quantum))
}

// held63 is how the engine holds a wait that no duration can.
func held63(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}
