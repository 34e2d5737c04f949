package storetest

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// naive is a store of maps behind one lock: what the suite is tried on. Faults
// are planted in it by the fields that are functions or flags.
type naive struct {
	mu     sync.Mutex
	now    func() int64
	closed bool
	meters map[string]*meter.Meter
	states map[cell][]uint64
	tokens map[stint.ReservationID]*held
	open   map[cell]*meter.Reservations
	met    map[cell][]string // forms by the limit's name, that which decided last at the end

	plant   fault
	quantum time.Duration // that waits are rounded up to
}

type cell struct{ limit, key string }

// A part is one limit of a request.
type part struct {
	cell
	weight int64
	answer *stint.Decision // or nil
}

// units is what a cost of the request is here, held at the greatest int64.
func (p part) units(cost int64) (units int64, fits bool) {
	product := new(big.Int).Mul(big.NewInt(cost), big.NewInt(p.weight))
	if !product.IsInt64() {
		return math.MaxInt64, false
	}
	return product.Int64(), true
}

type held struct {
	parts   []part
	marks   []meter.ChargeRef
	meters  []*meter.Meter
	cost    int64
	expires int64
	answer  *stint.Decision
}

// A fault says how a broken store differs.
type fault struct {
	chargesDenials bool // where the limit does not count them
	chargesFirst   bool // one layer after the other, until one denies
	checksThenActs bool // releases the lock in between
	joinsKeys      bool // into one string with the limit's name
	floors         bool // waits, by a nanosecond
	neverIsLong    bool // the wait for the impossible is an hour
	forgets        int  // keep only this many states; 0 keeps all
	rounds         bool // T to whole nanoseconds
	settlesTwice   bool
	mints          bool // gives back what time has forgiven
	peekCharges    bool
	ignoresDenied  bool // count_denied
	upToIsTake     bool // take_up_to takes all or nothing
	sameEverywhere bool // every layer's bit is that of the first
	starvesFirst   bool // remaining is one too small
	neverExpires   bool
	resetsAll      bool
	settlesUnits   bool // without their weights
	wrapsWeights   bool
	sharesAnswers  bool // each limit's is the joined one
	changeMints    bool // a form starts afresh
	dropsForms     bool // and others count nothing of it
}

func newNaive(now func() int64, plant fault) *naive {
	return &naive{now: now, plant: plant, quantum: 1,
		meters: map[string]*meter.Meter{}, states: map[cell][]uint64{}, tokens: map[stint.ReservationID]*held{}, open: map[cell]*meter.Reservations{}, met: map[cell][]string{}}
}

type naiveBound struct {
	store *naive
	name  string
	names []string
	given []stint.Limit
}

func (b *naiveBound) Name() string { return b.name }

func (s *naive) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &naiveBound{store: s, name: name, given: limits}
	if s.closed {
		return nil, stint.ErrClosed
	}
	if err := stint.CheckBind(name, limits); err != nil {
		return nil, err
	}
	var meters []*meter.Meter
	for _, l := range limits {
		if s.plant.rounds && l.Algorithm() == meter.GCRA && l.Period() > time.Duration(l.Count()) {
			l = stint.New(1, l.Period()/time.Duration(l.Count())).WithBurst(l.Burst()).WithName(l.ID())
		}
		m, err := l.Meter()
		if err != nil {
			return nil, err
		}
		meters, b.names = append(meters, m), append(b.names, name+"\x00"+l.ID()+"\x00"+l.String())
	}
	for i, name := range b.names {
		s.meters[name] = meters[i]
	}
	return b, nil
}

// limitOf is the limit that a form is one of.
func (c cell) limitOf() cell {
	return cell{c.limit[:strings.LastIndexByte(c.limit, 0)], c.key}
}

// meet makes the form of a cell one that counts its key, and says how it was
// before.
func (s *naive) meet(c cell) (undo func()) {
	at, now := c.limitOf(), s.now()
	met := s.met[at]
	busy := slices.ContainsFunc(met, func(f string) bool {
		state := s.states[cell{f, c.key}]
		return state != nil && !s.meters[f].Idle(state, now)
	})
	if !busy && len(met) > 1 {
		for _, f := range met {
			delete(s.states, cell{f, c.key})
			delete(s.open, cell{f, c.key})
		}
		met = nil
	}
	was, state := s.met[at], s.states[c]
	if slices.Contains(met, c.limit) {
		return func() {}
	}
	if busy && !s.plant.changeMints {
		from := met[len(met)-1]
		old := s.states[cell{from, c.key}]
		to := make([]uint64, max(len(old), s.meters[c.limit].Words()))
		s.meters[c.limit].Migrate(to, old, s.meters[from], now)
		s.states[c] = to
	}
	s.met[at] = append(slices.Clone(met), c.limit)
	return func() {
		s.met[at], s.states[c] = was, state
		if state == nil {
			delete(s.states, c)
		}
	}
}

// others does something to the states of a key under the forms that do not
// decide.
func (s *naive) others(c cell, do func(m *meter.Meter, c cell)) {
	met := s.met[c.limitOf()]
	if i := slices.Index(met, c.limit); i >= 0 && i < len(met)-1 {
		met = append(slices.Delete(slices.Clone(met), i, i+1), c.limit)
		s.met[c.limitOf()] = met
	}
	for _, f := range met {
		if f != c.limit && !s.plant.dropsForms {
			delete(s.open, cell{f, c.key})
			do(s.meters[f], cell{f, c.key})
		}
	}
}

func (b *naiveBound) Limits() []stint.Limit { return slices.Clone(b.given) }

func (b *naiveBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	return b.store.Decide(ctx, op, []stint.Layer{{Bound: b, Key: key}}, cost)
}

func (b *naiveBound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

// parts flattens layers.
func (s *naive) parts(layers []stint.Layer, cost int64) (all []part, err error) {
	if s.closed {
		return nil, stint.ErrClosed
	}
	if cost < 0 {
		return nil, stint.ErrCost
	}
	seen := map[cell]bool{}
	for _, layer := range layers {
		b, ok := layer.Bound.(*naiveBound)
		if !ok || b.store != s {
			return nil, stint.ErrLayers
		}
		switch {
		case layer.Weight < 0:
			return nil, stint.ErrCost
		case layer.Answers != nil && len(layer.Answers) < len(b.names):
			return nil, stint.ErrLayers
		}
		for i, name := range b.names {
			c := cell{name, layer.Key}
			if s.plant.joinsKeys {
				c = cell{name, strings.TrimSpace(layer.Key)}
			}
			if seen[c.limitOf()] {
				return nil, stint.ErrLayers
			}
			seen[c.limitOf()] = true
			p := part{cell: c, weight: max(layer.Weight, 1)}
			if layer.Answers != nil {
				p.answer = &layer.Answers[i]
			}
			all = append(all, p)
		}
	}
	if len(all) == 0 || len(all) > stint.MaxLimits {
		return nil, stint.ErrLayers
	}
	return all, nil
}

// state returns the state of a cell with room for a charge.
func (s *naive) state(c cell, cost int64) []uint64 {
	m := s.meters[c.limit]
	state := s.states[c]
	if state == nil {
		if n := s.plant.forgets; n > 0 && len(s.states) >= n {
			for victim := range s.states {
				delete(s.states, victim)
				break
			}
		}
		state = make([]uint64, m.Words())
	}
	if n := m.Room(state, s.now(), cost); n > len(state) {
		to := make([]uint64, 2*n)
		m.Move(to, state)
		state = to
	}
	s.states[c] = state
	return state
}

// reserved returns the open reservations of a cell.
func (s *naive) reserved(c cell) *meter.Reservations {
	if s.open[c] == nil {
		s.open[c] = &meter.Reservations{}
	}
	return s.open[c]
}

func (s *naive) Decide(_ context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	d, _, err := s.decide(op, layers, cost, nil)
	return d, err
}

func (s *naive) decide(op meter.Op, layers []stint.Layer, cost int64, expires *int64) (d stint.Decision, h *held, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, err := s.parts(layers, cost)
	if err != nil {
		return d, nil, err
	}
	now := s.now()
	for _, p := range parts {
		if undo := s.meet(p.cell); op == meter.OpPeek || cost == 0 {
			defer undo()
		}
	}
	if op == meter.OpTakeUpTo && !s.plant.upToIsTake {
		most := cost
		for _, p := range parts {
			most = min(most, s.meters[p.limit].Answer(s.state(p.cell, 0), now, 0, true).Remaining/p.weight)
		}
		cost = max(most, min(cost, 1))
	}
	var denied stint.LimitSet
	for i, p := range parts {
		if s.admits(p, now, cost) {
			if s.plant.chargesFirst && op != meter.OpPeek && i+1 < len(parts) {
				defer func() {
					if denied != 0 {
						units, _ := p.units(cost)
						s.meters[p.limit].ChargeAmong(s.reserved(p.cell), s.state(p.cell, units), now, units, false)
					}
				}()
			}
			continue
		}
		denied |= 1 << i
		if s.plant.sameEverywhere {
			denied = 1
		}
	}
	if s.plant.checksThenActs {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	h = &held{parts: parts, cost: cost}
	for i, p := range parts {
		layer, mark := s.layer(op, p, now, cost, denied == 0, expires)
		h.marks, h.meters = append(h.marks, mark), append(h.meters, s.meters[p.limit])
		if p.answer != nil {
			*p.answer = alone(layer, denied.Has(i))
		}
		if layer.Taken = 0; i == 0 {
			d = p.perUnit(layer)
		} else {
			layer = p.perUnit(layer)
			layer.Tightest = i
			d.Join(&layer)
		}
	}
	d.Denied = denied
	if d.Allowed && op != meter.OpPeek {
		d.Taken = cost
	}
	for _, p := range parts {
		if p.answer != nil && s.plant.sharesAnswers {
			*p.answer = d
		}
	}
	return d, h, nil
}

// admits reports whether a part lets a cost pass.
func (s *naive) admits(p part, now, cost int64) bool {
	units, fits := p.units(cost)
	return (fits || s.plant.wrapsWeights) && s.meters[p.limit].Admits(s.state(p.cell, units), now, units)
}

// alone is what one limit answers by itself.
func alone(d stint.Decision, denied bool) stint.Decision {
	if d.Allowed, d.Denied = !denied, 0; denied {
		d.Denied = 1
	} else {
		d.RetryAfter = 0
	}
	return d
}

// perUnit is an answer in units of the request.
func (p part) perUnit(d stint.Decision) stint.Decision {
	d.Limit, d.Remaining = d.Limit/p.weight, d.Remaining/p.weight
	return d
}

// layer charges one layer, if it is to be, and gives its answer.
func (s *naive) layer(op meter.Op, p part, now, cost int64, allowed bool, expires *int64) (d stint.Decision, mark meter.ChargeRef) {
	units, fits := p.units(cost)
	m, state := s.meters[p.limit], s.state(p.cell, units)
	delay := m.Delay(state, now, units)
	counts := m.CountsDenied() && !s.plant.ignoresDenied || s.plant.chargesDenials
	if op != meter.OpPeek && (allowed || counts) || s.plant.peekCharges && allowed {
		if open := s.reserved(p.cell); expires != nil && allowed {
			mark = m.Reserve(open, state, now, units, *expires)
		} else {
			m.ChargeAmong(open, state, now, units, allowed)
		}
	}
	if op != meter.OpPeek && units > 0 {
		s.others(p.cell, func(m *meter.Meter, c cell) {
			if allowed || m.CountsDenied() {
				m.Charge(s.state(c, units), now, units)
			}
		})
	}
	d.Set(m, m.Answer(state, now, units, allowed), allowed, 0)
	d = s.coarse(d)
	if !allowed && !fits {
		d.RetryAfter = stint.Never
	}
	if allowed {
		d.Delay = s.up(delay)
	}
	if allowed && op != meter.OpPeek {
		d.Taken = units
	}
	switch {
	case s.plant.starvesFirst && d.Remaining > 0:
		d.Remaining--
	case s.plant.floors && d.RetryAfter > 1:
		d.RetryAfter--
	case s.plant.neverIsLong && d.RetryAfter == stint.Never:
		d.RetryAfter = stint.Wait(time.Hour)
	}
	return d, mark
}

func (s *naive) up(d time.Duration) time.Duration {
	if rest := d % s.quantum; rest > 0 && d < math.MaxInt64-s.quantum {
		d += s.quantum - rest
	}
	return d
}

func (s *naive) coarse(d stint.Decision) stint.Decision {
	d.RetryAfter, d.ResetAfter = stint.Wait(s.up(time.Duration(d.RetryAfter))), s.up(d.ResetAfter)
	return d
}

func (s *naive) Reserve(_ context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	if ttl <= 0 {
		return stint.Decision{}, "", fmt.Errorf("ttl %v", ttl)
	}
	expires := int64(math.MaxInt64)
	if now := s.now(); int64(ttl) < expires-now {
		expires = now + int64(ttl)
	}
	d, h, err := s.decide(meter.OpTake, layers, cost, &expires)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.expires = expires
	for i := range h.parts {
		h.parts[i].answer = nil // the caller's, for this call alone
	}
	id := stint.ReservationID(fmt.Sprint("token ", len(s.tokens)))
	s.tokens[id] = h
	return d, id, nil
}

func (s *naive) Settle(_ context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, h := s.now(), s.tokens[id]
	switch {
	case s.closed:
		return stint.Decision{}, stint.ErrClosed
	case cost < 0:
		return stint.Decision{}, stint.ErrCost
	case h == nil || h.expires <= now && !s.plant.neverExpires:
		return stint.Decision{}, stint.ErrReservation
	case h.answer != nil && !s.plant.settlesTwice:
		return *h.answer, nil
	}
	d := s.adjust(h.parts, func(i int, m *meter.Meter, p part) {
		reserved, _ := p.units(h.cost)
		actual, _ := p.units(cost)
		if s.plant.settlesUnits {
			reserved, actual = h.cost, cost
		}
		state, open := s.state(p.cell, max(actual-reserved, 0)), s.reserved(p.cell)
		switch {
		case s.plant.mints && actual < reserved:
			m.Refund(state, now, reserved-actual)
		case m == h.meters[i]:
			m.Settle(open, h.marks[i], state, now, reserved, actual)
		case actual > reserved:
			m.ChargeAmong(open, state, now, actual-reserved, false)
		}
	})
	h.answer = &d
	return d, nil
}

func (s *naive) adjust(parts []part, do func(i int, m *meter.Meter, p part)) (d stint.Decision) {
	for i, p := range parts {
		m := s.meters[p.limit]
		do(i, m, p)
		var layer stint.Decision
		layer.Set(m, m.Answer(s.state(p.cell, 0), s.now(), 0, true), true, 0)
		layer = s.coarse(layer)
		if p.answer != nil {
			*p.answer = layer
		}
		if layer = p.perUnit(layer); i == 0 {
			d = layer
		} else {
			layer.Tightest = i
			d.Join(&layer)
		}
	}
	return d
}

func (s *naive) Refund(_ context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, err := s.parts(layers, cost)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.adjust(parts, func(_ int, m *meter.Meter, p part) {
		units, _ := p.units(cost)
		m.Refund(s.state(p.cell, 0), s.now(), units)
	}), nil
}

func (s *naive) Reset(_ context.Context, layers []stint.Layer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, err := s.parts(layers, 0)
	if err != nil {
		return err
	}
	for _, p := range parts {
		for _, f := range append(s.met[p.limitOf()], p.limit) {
			delete(s.states, cell{f, p.key})
			delete(s.open, cell{f, p.key})
		}
		delete(s.met, p.limitOf())
		for id, h := range s.tokens {
			for _, other := range h.parts {
				if other.cell == p.cell {
					delete(s.tokens, id)
				}
			}
		}
	}
	if s.plant.resetsAll {
		clear(s.states)
	}
	return nil
}

func (s *naive) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func TestNaive(t *testing.T) {
	Run(t, func(_ testing.TB, now func() int64) stint.Store { return newNaive(now, fault{}) })
}
