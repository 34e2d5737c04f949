package redisstore

import (
	"context"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/meter"
)

// modeBound implements [stint.Bound]: limits on one key, each in its mode.
type modeBound struct {
	*modes
	name     string
	all      []*boundLimit
	onServer *bound      // all limits as the server holds them; nil in mode Share
	local    stint.Bound // all limits in memory; nil in the other modes
}

// Limits implements [stint.Bound].
func (b *modeBound) Limits() []stint.Limit {
	out := make([]stint.Limit, len(b.all))
	for i, one := range b.all {
		if out[i] = one.limit; one.mode == Share {
			out[i] = *one.stands.Load()
		}
	}
	return out
}

// Name implements [stint.Bound].
func (b *modeBound) Name() string { return b.name }

// Allow implements [stint.Bound].
func (b *modeBound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	if len(b.all) == 1 && b.local == nil {
		return b.all[0].allow(ctx, key, cost)
	}
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [stint.Bound].
func (b *modeBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	switch {
	case b.local != nil:
		return b.local.Decide(ctx, op, key, cost)
	case len(b.all) == 1:
		return b.all[0].decide(ctx, op, key, cost)
	}
	return b.modes.Decide(ctx, op, []stint.Layer{{Bound: b, Key: key}}, cost)
}

// An item is one limit of a request with several layers.
type item struct {
	*boundLimit
	key      string
	weight   int64
	answer   *stint.Decision // where to write its own decision, or nil
	own      stint.Decision  // its own decision, in its own units
	charge   localCharge
	answered bool // own is set
}

// flatten returns the limits of a request.
func (m *modes) flatten(layers []stint.Layer) ([]item, error) {
	var items []item
	for i, layer := range layers {
		b, ok := layer.Bound.(*modeBound)
		if ok = ok && b.modes == m; !ok {
			return nil, layercheck.One(i, &layer, false, 0)
		}
		if err := layercheck.One(i, &layer, true, len(b.all)); err != nil {
			return nil, err
		}
		for k, one := range b.all {
			for j := range items {
				if items[j].key == layer.Key && items[j].name == one.name {
					return nil, layercheck.Twice(one.name)
				}
			}
			it := item{boundLimit: one, key: layer.Key, weight: max(layer.Weight, 1)}
			if layer.Answers != nil {
				it.answer = &layer.Answers[k]
			}
			items = append(items, it)
		}
	}
	return items, layercheck.Count(len(items))
}

// here reports whether this process tries to decide the item.
func (it *item) here(op meter.Op, cost int64) bool {
	if it.mode == Share {
		return true
	}
	return it.async != nil && looks(op, cost) || op == meter.OpTake && cost > 0 && (it.lease != nil || it.async != nil)
}

// looks reports whether a call changes nothing.
func looks(op meter.Op, cost int64) bool {
	return op == meter.OpPeek || op == meter.OpTake && cost == 0
}

// units converts a cost of the request to units of the item, and reports whether they fit an
// int64.
func (it *item) units(cost int64) (int64, bool) {
	high, low := bits.Mul64(uint64(cost), uint64(it.weight))
	return int64(low), high == 0 && low <= math.MaxInt64
}

// Decide implements [stint.Store].
func (m *modes) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if m.store.closed.Load() {
		return stint.Decision{}, stint.ErrClosed
	}
	items, err := m.flatten(layers)
	if err != nil {
		return stint.Decision{}, err
	}
	if len(items) == 1 && items[0].weight == 1 && items[0].mode != Share {
		d, err := items[0].boundLimit.decide(ctx, op, items[0].key, cost)
		if items[0].answer != nil && err == nil {
			*items[0].answer = d
		}
		return d, err
	}
	here, shares := 0, 0
	for i := range items {
		if items[i].here(op, cost) {
			here++
		}
		if items[i].mode == Share {
			shares++
		}
	}
	switch {
	case shares == len(items):
		return m.local.Load().Decide(ctx, op, m.unwrap(layers), cost)
	case here == 0:
		return m.store.Decide(ctx, op, m.unwrap(layers), cost)
	case op == meter.OpTakeUpTo:
		return m.upTo(ctx, items, cost)
	}
	return m.decideAll(ctx, op, items, cost)
}

// unwrap returns the layers with the bounds of the server or of memory, if one of the two has
// them all.
func (m *modes) unwrap(layers []stint.Layer) []stint.Layer {
	out := append([]stint.Layer(nil), layers...)
	for i := range out {
		b := out[i].Bound.(*modeBound)
		if out[i].Bound = b.local; b.local == nil {
			out[i].Bound = b.onServer
		}
	}
	return out
}

// A boundLimit is one limit in its mode. It may be used from many goroutines at
// once.
type boundLimit struct {
	*modes
	mode     Mode
	name     string                       // the name of its states
	limit    stint.Limit                  // as it was bound
	compiled *compiled                    // as the server holds it
	strict   *bound                       // asks the server; nil in mode Share
	share    stint.Bound                  // in memory; nil in the other modes
	stands   *atomic.Pointer[stint.Limit] // the limit bound last under this name; nil in the other modes
	denied   *denials                     // nil if denials are not cached
	lease    *leases                      // nil unless leases decide it
	async    *accounts                    // nil unless accounts decide it
}

// current reports whether this is the limit of its identity that was bound last. If not, what
// this node has in hand is void, and the server decides.
func (o *boundLimit) current() bool { return o.strict.limits[0].last.Load() == o.compiled }

// decide decides for one key under this limit alone.
func (o *boundLimit) decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if op == meter.OpTake && cost > 0 || o.async != nil && looks(op, cost) {
		var h localCharge
		result, d, err := o.take(ctx, op, key, cost, &h)
		if result == passed && o.lease != nil {
			d = o.lease.describe(key, cost)
		}
		if result != byServer {
			return d, err
		}
		var cancel context.CancelFunc
		ctx, cancel = h.within(ctx, o.store)
		defer cancel()
	}
	return o.decideByServer(ctx, op, key, cost)
}

// allow is decide of OpTake, for callers that only need to know whether it passed.
func (o *boundLimit) allow(ctx context.Context, key string, cost int64) (bool, error) {
	if o.lease == nil || cost <= 0 {
		d, err := o.decide(ctx, meter.OpTake, key, cost)
		return d.Allowed, err
	}
	var h localCharge
	result, d, err := o.lease.take(ctx, key, cost, &h)
	if result == passed {
		return true, nil
	}
	if result == byServer {
		within, cancel := h.within(ctx, o.store)
		defer cancel()
		d, err = o.decideByServer(within, meter.OpTake, key, cost)
	}
	return d.Allowed, err
}

// take decides in this process, if the mode allows that.
func (o *boundLimit) take(ctx context.Context, op meter.Op, key string, cost int64, h *localCharge) (outcome, stint.Decision, error) {
	switch {
	case o.lease != nil:
		return o.lease.take(ctx, key, cost, h)
	case o.async != nil:
		return o.async.take(ctx, key, cost, looks(op, cost), h)
	case o.mode == Share:
		return o.reserve(ctx, key, cost, h)
	}
	return byServer, stint.Decision{}, nil
}

// decideByServer asks the server, unless a cached denial answers.
func (o *boundLimit) decideByServer(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	name := brief(key)
	if op == meter.OpTake && cost > 0 {
		if known, since := o.denied.known(name, cost, func() int64 { return o.givenBack(key) }); known != nil {
			return known.after(o.compiled, cost, cost == known.cost, since), nil
		}
	}
	var before given
	if o.denied != nil {
		before = o.returns.now(func() int64 { return o.givenBack(key) })
	}
	var one [1]part
	parts, err := o.store.request(one[:0], []stint.Layer{{Bound: o.strict, Key: key}})
	if err != nil {
		return stint.Decision{}, err
	}
	d, err := o.store.decide(ctx, op, parts, cost)
	if op == meter.OpTakeUpTo && !d.Allowed {
		cost = min(cost, 1) // the server denied one unit
	}
	switch {
	case err != nil || op == meter.OpPeek || cost == 0:
	case d.Allowed:
		o.denied.drop(name)
	default:
		o.denied.learn(name, &denial{cost: cost, given: before, answer: d, drain: parts[0].drain})
	}
	return d, err
}

// shareFor is how long units of a share are reserved while other layers may deny the
// request. They are settled at once.
const shareFor = time.Minute

// reserve takes units of a share so that they can be put back.
func (o *boundLimit) reserve(ctx context.Context, key string, cost int64, h *localCharge) (outcome, stint.Decision, error) {
	d, id, err := o.local.Load().Reserve(ctx, []stint.Layer{{Bound: o.share, Key: key}}, cost, shareFor)
	h.units, h.id = cost, id
	if err != nil || !d.Allowed {
		return refused, d, err
	}
	return passed, d, nil
}

// settle ends a hold: if the request was denied, the units go back.
func (o *boundLimit) settle(key string, h localCharge, needed bool) {
	switch {
	case o.lease != nil:
		o.lease.settle(key, h, needed)
	case o.async != nil:
		o.async.settle(key, h, needed)
	case o.mode == Share:
		if !needed {
			h.units = 0
		}
		// The reservation was made just now, in memory, so this cannot fail.
		_, _ = o.local.Load().Settle(context.Background(), h.id, h.units)
	}
}

// drop forgets what is known of a key, and its units in hand.
func (o *boundLimit) drop(key string) {
	if o.lease != nil {
		o.lease.drop(key)
	}
	if o.async != nil {
		o.async.drop(key)
	}
}

// renew makes the next decision about a key ask the server, since units were given back.
func (o *boundLimit) renew(key string) {
	if o.lease != nil {
		o.lease.renew(key)
	}
	if o.async != nil {
		o.async.renew(key)
	}
}

// upTo takes the most that passes. Of what is decided here, only shares bound it.
func (m *modes) upTo(ctx context.Context, items []item, cost int64) (stint.Decision, error) {
	most := cost
	for i := range items {
		if it := &items[i]; it.mode == Share {
			d, err := it.share.Decide(ctx, meter.OpPeek, it.key, 1)
			if err != nil {
				return d, err
			}
			most = min(most, d.Remaining/it.weight)
		}
	}
	return m.decideAll(ctx, meter.OpTakeUpTo, items, max(most, min(cost, 1)))
}

// decideAll decides a request with several layers. Those decided here come first, then the
// others with one call. If one denies, what was taken here is put back.
func (m *modes) decideAll(ctx context.Context, op meter.Op, items []item, cost int64) (stint.Decision, error) {
	ctx, cancel := m.store.within(ctx)
	defer cancel()
	denied := false
	for i := range items {
		it := &items[i]
		if !it.here(op, cost) {
			continue
		}
		if err := it.try(ctx, op, cost); err != nil {
			putBack(items, 0)
			return stint.Decision{}, err
		}
		denied = denied || it.answered && !it.own.Allowed
		if denied && op != meter.OpPeek {
			break
		}
	}
	taken := cost
	if !denied || op == meter.OpPeek {
		var err error
		if taken, err = m.rest(ctx, op, items, cost); err != nil {
			putBack(items, 0)
			return stint.Decision{}, err
		}
	}
	return join(op, items, taken), nil
}

// try decides one item in this process, if that is possible.
func (it *item) try(ctx context.Context, op meter.Op, cost int64) (err error) {
	units, fits := it.units(cost)
	if !fits {
		it.answered = true
		it.own = stint.Decision{Limit: it.limit.Capacity(), Denied: 1, RetryAfter: stint.Never}
		return nil
	}
	if op == meter.OpPeek || units == 0 {
		result := passed
		if it.async != nil {
			result, it.own, err = it.async.take(ctx, it.key, units, true, &it.charge)
		} else {
			it.own, err = it.share.Decide(ctx, meter.OpPeek, it.key, units)
		}
		it.answered = result != byServer
		return err
	}
	it.charge.kept = true
	result, d, err := it.take(ctx, meter.OpTake, it.key, units, &it.charge)
	if result == passed && it.lease != nil {
		d = it.lease.describe(it.key, units)
	}
	it.own, it.answered = d, result != byServer
	if result != passed {
		it.charge = localCharge{}
	}
	return err
}

// rest asks the server for the items that have not answered, and returns what the
// request takes: 0 if it is denied.
func (m *modes) rest(ctx context.Context, op meter.Op, items []item, cost int64) (int64, error) {
	of := make([]*item, 0, len(items))
	for i := range items {
		if it := &items[i]; !it.answered {
			of = append(of, it)
		}
	}
	if len(of) == 0 {
		return cost, nil
	}
	layers, answers := make([]stint.Layer, len(of)), make([]stint.Decision, len(of))
	for i, it := range of {
		layers[i] = stint.Layer{Bound: it.strict, Key: it.key, Weight: it.weight, Answers: answers[i : i+1]}
	}
	d, err := m.store.Decide(ctx, op, layers, cost)
	if err != nil {
		return 0, err
	}
	for i, it := range of {
		it.own, it.answered = answers[i], true
	}
	if op == meter.OpTakeUpTo {
		cost = d.Taken
	}
	return cost, nil
}

// putBack ends every hold; taken is the cost that the request took, 0 if it was denied.
func putBack(items []item, taken int64) {
	for i := range items {
		it := &items[i]
		if it.charge.units == 0 {
			continue
		}
		if it.mode == Share { // only a share may have held more than was taken
			units, _ := it.units(taken)
			_, _ = it.local.Load().Settle(context.Background(), it.charge.id, units)
		} else {
			it.settle(it.key, it.charge, taken > 0)
		}
		it.charge = localCharge{}
	}
}

// join makes one decision of the items' own decisions, and writes these to their callers.
func join(op meter.Op, items []item, taken int64) (d stint.Decision) {
	allowed, first := true, true
	for i := range items {
		if it := &items[i]; it.answered && !it.own.Allowed {
			d.Denied |= 1 << uint(i)
			allowed = false
		}
	}
	if !allowed || op == meter.OpPeek {
		taken = 0
	}
	putBack(items, taken)
	denied := d.Denied
	for i := range items {
		it := &items[i]
		if !it.answered {
			it.own = stint.Decision{Allowed: true, Limit: it.limit.Capacity(), Remaining: it.limit.Capacity()}
		}
		it.own.Taken, _ = it.units(taken)
		if it.answer != nil {
			*it.answer = it.own
		}
		of := it.own
		of.Limit /= it.weight
		of.Remaining /= it.weight
		switch {
		case !it.answered: // it was not asked
		case first:
			d, first = of, false
			d.Tightest = i
		default:
			of.Tightest = i
			d.Join(&of)
		}
	}
	d.Allowed, d.Denied, d.Taken = allowed, denied, taken
	return d
}
