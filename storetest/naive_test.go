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
	mu      sync.Mutex
	now     func() int64
	closed  bool
	states  map[cell][]uint64
	tokens  map[stint.ReservationID]*held
	open    map[cell]*meter.Reservations
	numbers map[cell]*meter.Meter // that states drain by
	bans    map[cell]int64        // when they end

	plant   fault
	quantum time.Duration // that waits are rounded up to
}

type cell struct{ limit, key string }

// A part is one limit of a request.
type part struct {
	cell
	meter  *meter.Meter
	weight int64
	excuse time.Duration   // how long what it reserves excuses denials
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
	opens   []*meter.Reservations
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
	cutsUnits      bool // a decision converts what is in use, and cuts it at its capacity
	startsAfresh   bool // other numbers find nothing in use
	peekConverts   bool // a look puts its numbers in force
	readsOwn       bool // a state is read by the numbers of the limit that asks
	convertsTwice  bool
	banProlongs    bool
	peekBans       bool
	neighbourBans  bool // a denial by another limit bans
	banStays       bool // after a reset
	blockShortens  bool // a ban that lasts longer
	blockInSteps   bool // it looks at the ban, releases the lock, and writes
	unblockResets  bool // all that was used
	raisesAny      bool // reservations that are gone too
}

func newNaive(now func() int64, plant fault) *naive {
	return &naive{now: now, plant: plant, quantum: 1,
		states: map[cell][]uint64{}, tokens: map[stint.ReservationID]*held{}, open: map[cell]*meter.Reservations{}, numbers: map[cell]*meter.Meter{}, bans: map[cell]int64{}}
}

type naiveBound struct {
	store  *naive
	name   string
	names  []string
	meters []*meter.Meter
	given  []stint.Limit
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
	for _, l := range limits {
		if s.plant.rounds && l.Algorithm() == meter.GCRA && l.Period() > time.Duration(l.Count()) {
			l = stint.New(1, l.Period()/time.Duration(l.Count())).WithBurst(l.Burst())
		}
		m, err := l.Meter()
		if err != nil {
			return nil, err
		}
		b.meters, b.names = append(b.meters, m), append(b.names, name+"\x00"+l.ID())
	}
	return b, nil
}

// putInForce has a decision put its numbers in force, and reports whether they are.
func (s *naive) putInForce(p part) bool {
	old, state := s.numbers[p.cell], s.state(p, 0)
	switch {
	case old == nil || old.SameNumbers(p.meter) || s.plant.readsOwn:
	case s.plant.startsAfresh:
		clear(state)
	case !p.meter.Adopt(state, old, s.now()):
		if !s.plant.cutsUnits {
			return false
		}
		clear(state)
		p.meter.Charge(state, s.now(), p.meter.Capacity())
	case s.plant.convertsTwice:
		p.meter.Adopt(state, old, s.now())
	}
	if old != nil && !old.SameNumbers(p.meter) {
		delete(s.open, p.cell)
	}
	s.numbers[p.cell] = p.meter
	return true
}

// foreign returns the numbers that a state has, if they are others than those of the part.
func (s *naive) foreign(p part) *meter.Meter {
	old := s.numbers[p.cell]
	if old == nil || old.SameNumbers(p.meter) || s.plant.readsOwn {
		return nil
	}
	if old.Idle(s.state(p, 0), s.now()) {
		clear(s.state(p, 0))
		return nil
	}
	return old
}

// ask is what a part says to a request of some units, and whether it admits them.
func (s *naive) ask(p part, now, units int64) (meter.Answer, bool) {
	a, ok := s.askState(p, now, units)
	if left := time.Duration(s.bans[p.cell] - now); p.meter.Spec().Ban > 0 && left > 0 {
		a.Remaining, a.ResetAfter = 0, max(a.ResetAfter, left)
		if units > 0 && a.RetryAfter != meter.Never {
			a.RetryAfter = max(a.RetryAfter, left)
		}
		ok = units == 0
	}
	return a, ok
}

// ban begins one where a limit with bans denies.
func (s *naive) ban(p part, now, cost int64) {
	ban := int64(p.meter.Spec().Ban)
	units, fits := p.units(cost)
	if ban > 0 && fits && units <= p.meter.Capacity() && (s.bans[p.cell] <= now || s.plant.banProlongs) {
		s.bans[p.cell] = now + ban
	}
}

// askState is ask of the state alone.
func (s *naive) askState(p part, now, units int64) (meter.Answer, bool) {
	state := s.state(p, units)
	if old := s.foreign(p); old != nil {
		return p.meter.Through(state, old, now, units)
	}
	ok := p.meter.Admits(state, now, units)
	a := p.meter.Answer(state, now, units, ok)
	a.Delay = p.meter.Delay(state, now, units)
	return a, ok
}

// charger is what charges the state of a part.
func (s *naive) charger(p part) *meter.Meter {
	if old := s.foreign(p); old != nil {
		return old
	}
	if p.meter.Drains() {
		if old := s.numbers[p.cell]; old != nil && !old.SameNumbers(p.meter) {
			delete(s.open, p.cell)
		}
		s.numbers[p.cell] = p.meter
	}
	return p.meter
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
			if seen[c] {
				return nil, stint.ErrLayers
			}
			seen[c] = true
			p := part{cell: c, meter: b.meters[i], weight: max(layer.Weight, 1), excuse: layer.Excuses}
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

// state returns the state of a part with room for a charge.
func (s *naive) state(p part, cost int64) []uint64 {
	m, c := p.meter, p.cell
	state := s.states[c]
	if state == nil {
		if n := s.plant.forgets; n > 0 && len(s.states) >= n {
			for victim := range s.states {
				delete(s.states, victim)
				delete(s.numbers, victim)
				break
			}
		}
		state = make([]uint64, max(m.Words(), 2))
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
		if op != meter.OpPeek && cost > 0 || s.plant.peekConverts {
			s.putInForce(p)
		}
	}
	if op == meter.OpTakeUpTo && !s.plant.upToIsTake {
		most := cost
		for _, p := range parts {
			a, _ := s.ask(p, now, 0)
			most = min(most, a.Remaining/p.weight)
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
						s.charger(p).ChargeAmong(s.reserved(p.cell), s.state(p, units), now, units, false)
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
	h, excused := &held{parts: parts, cost: cost}, s.excused(parts, denied, now, cost)
	for i, p := range parts {
		if (denied.Has(i) && !excused.Has(i) || denied != 0 && s.plant.neighbourBans) && (op != meter.OpPeek || s.plant.peekBans) {
			s.ban(p, now, cost)
		}
	}
	for i, p := range parts {
		layer, mark := s.layer(op, p, now, cost, denied == 0, denied == excused, expires)
		if excused.Has(i) {
			layer.RetryAfter = min(layer.RetryAfter, stint.Wait(meter.ExcusedFor))
		}
		h.marks, h.opens = append(h.marks, mark), append(h.opens, s.open[p.cell])
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

// excused are those of the parts which denied a cost that would let it pass if what is open
// were given back.
func (s *naive) excused(parts []part, denied stint.LimitSet, now, cost int64) (excused stint.LimitSet) {
	for i, p := range parts {
		units, fits := p.units(cost)
		if denied.Has(i) && fits && s.bans[p.cell] <= now && p.meter.Excused(s.open[p.cell], s.states[p.cell], now, units) {
			excused |= 1 << i
		}
	}
	return excused
}

// admits reports whether a part lets a cost pass.
func (s *naive) admits(p part, now, cost int64) bool {
	units, fits := p.units(cost)
	_, ok := s.ask(p, now, units)
	return (fits || s.plant.wrapsWeights) && ok
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
func (s *naive) layer(op meter.Op, p part, now, cost int64, allowed, excused bool, expires *int64) (d stint.Decision, mark meter.ChargeRef) {
	units, fits := p.units(cost)
	before, _ := s.ask(p, now, units)
	counts := p.meter.CountsDenied() && !s.plant.ignoresDenied || s.plant.chargesDenials
	if op != meter.OpPeek && (allowed || counts && !excused) && units > 0 || s.plant.peekCharges && allowed {
		m := s.charger(p)
		if open := s.reserved(p.cell); expires != nil && allowed {
			mark = m.Reserve(open, s.state(p, units), now, units)
			open.Excuse(mark, units, now, min(*expires, now+int64(p.excuse)))
		} else {
			m.ChargeAmong(open, s.state(p, units), now, units, allowed)
		}
	}
	a, _ := s.ask(p, now, units)
	if allowed {
		a.RetryAfter = 0
	}
	d.Set(p.meter, a, allowed, 0)
	d.Banned = !allowed && units > 0 && p.meter.Spec().Ban > 0 && s.bans[p.cell] > now
	d.Delay = 0
	d = s.coarse(d)
	if !allowed && !fits {
		d.RetryAfter = stint.Never
	}
	if allowed {
		d.Delay = s.up(before.Delay)
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
	for _, layer := range layers {
		if layer.Raises != "" && s.token(layer.Raises) == nil && !s.plant.raisesAny {
			return stint.Decision{}, "", stint.ErrReservation
		}
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

// token returns what an ID names, or nil if that does not exist any more.
func (s *naive) token(id stint.ReservationID) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.tokens[id]
	if h == nil || h.expires <= s.now() && !s.plant.neverExpires {
		return nil
	}
	return h
}

func (s *naive) Settle(_ context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	h := s.token(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	switch {
	case s.closed:
		return stint.Decision{}, stint.ErrClosed
	case cost < 0:
		return stint.Decision{}, stint.ErrCost
	case h == nil:
		return stint.Decision{}, stint.ErrReservation
	case h.answer != nil && !s.plant.settlesTwice:
		return *h.answer, nil
	}
	d := s.adjust(h.parts, func(i int, p part) {
		reserved, _ := p.units(h.cost)
		actual, _ := p.units(cost)
		if s.plant.settlesUnits {
			reserved, actual = h.cost, cost
		}
		state, open := s.state(p, max(actual-reserved, 0)), s.reserved(p.cell)
		switch {
		case s.plant.mints && actual < reserved:
			s.charger(p).Refund(state, now, reserved-actual)
		case reserved > 0 && (h.opens[i] == open || !p.meter.Drains()):
			p.meter.Settle(open, h.marks[i], state, now, reserved, actual)
		case actual > reserved:
			s.charger(p).ChargeAmong(s.reserved(p.cell), state, now, actual-reserved, false)
		}
	})
	h.answer = &d
	return d, nil
}

func (s *naive) adjust(parts []part, do func(i int, p part)) (d stint.Decision) {
	for i, p := range parts {
		do(i, p)
		var layer stint.Decision
		a, _ := s.ask(p, s.now(), 0)
		layer.Set(p.meter, a, true, 0)
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
	return s.adjust(parts, func(_ int, p part) {
		units, _ := p.units(cost)
		s.charger(p).Refund(s.state(p, 0), s.now(), units)
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
		delete(s.states, p.cell)
		delete(s.open, p.cell)
		delete(s.numbers, p.cell)
		if !s.plant.banStays {
			delete(s.bans, p.cell)
		}
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

func (s *naive) Block(_ context.Context, layers []stint.Layer, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, err := s.parts(layers, 0)
	if err != nil {
		return err
	}
	for _, p := range parts {
		end := s.now() + int64(d)
		switch longer := s.bans[p.cell] >= end; {
		case p.meter.Spec().Ban == 0:
		case d == 0:
			if delete(s.bans, p.cell); s.plant.unblockResets {
				delete(s.states, p.cell)
			}
		case !longer || s.plant.blockShortens:
			if s.plant.blockInSteps {
				s.mu.Unlock()
				runtime.Gosched()
				s.mu.Lock()
			}
			s.bans[p.cell] = end
		}
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
