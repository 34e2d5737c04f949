package storetest

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
)

// naive is a store of maps behind one lock: what the suite is tried on. Faults
// are planted in it by the fields that are functions or flags.
type naive struct {
	mu     sync.Mutex
	now    func() int64
	closed bool
	meters map[string]*stint.Meter
	states map[cell][]uint64
	tokens map[stint.Token]*held

	plant   fault
	quantum time.Duration // that waits are rounded up to
}

type cell struct{ limit, key string }

type held struct {
	cells   []cell
	marks   []stint.Mark
	cost    int64
	expires int64
	answer  *stint.Decision
}

// A fault says how a broken store differs.
type fault struct {
	chargesDenials bool // where the limit does not count them
	chargesFirst   bool // one layer after the other, until one denies
	checksThenActs bool // lets go of the lock in between
	joinsKeys      bool // into one string with the limit's name
	floors         bool // waits, by a nanosecond
	neverIsLong    bool // the wait for the impossible is an hour
	forgets        int  // all but so many states; 0 for none
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
}

func newNaive(now func() int64, plant fault) *naive {
	return &naive{now: now, plant: plant, quantum: 1,
		meters: map[string]*stint.Meter{}, states: map[cell][]uint64{}, tokens: map[stint.Token]*held{}}
}

type naiveBound struct {
	store *naive
	names []string
}

func (s *naive) Bind(limits ...stint.Limit) (stint.Bound, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &naiveBound{store: s}
	if s.closed {
		return nil, stint.ErrClosed
	}
	if len(limits) == 0 || len(limits) > stint.MaxLayers {
		return nil, stint.ErrLayers
	}
	var meters []*stint.Meter
	for _, l := range limits {
		if s.plant.rounds && l.Kind() == stint.GCRA && l.Period() > time.Duration(l.Count()) {
			l = stint.New(1, l.Period()/time.Duration(l.Count())).WithBurst(l.Burst()).WithName(l.Name())
		}
		m, err := stint.NewMeter(l)
		if err != nil {
			return nil, err
		}
		for _, name := range b.names {
			if name == l.Name() {
				return nil, stint.ErrLayers
			}
		}
		meters, b.names = append(meters, m), append(b.names, l.Name())
	}
	for i, name := range b.names {
		if old := s.meters[name]; old != nil {
			for c, from := range s.states {
				if c.limit == name {
					to := make([]uint64, max(len(from), meters[i].Words()))
					meters[i].Adopt(to, from, old, s.now())
					s.states[c] = to
				}
			}
		}
		s.meters[name] = meters[i]
	}
	return b, nil
}

func (b *naiveBound) Limits() (all []stint.Limit) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, name := range b.names {
		all = append(all, b.store.meters[name].Limit())
	}
	return all
}

func (b *naiveBound) Decide(ctx context.Context, op stint.Op, key string, cost int64) (stint.Decision, error) {
	return b.store.Decide(ctx, op, []stint.Layer{{Bound: b, Key: key}}, cost)
}

func (b *naiveBound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, stint.OpTake, key, cost)
	return d.Allowed, err
}

// cells flattens layers.
func (s *naive) cells(layers []stint.Layer, cost int64) (all []cell, err error) {
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
		for _, name := range b.names {
			c := cell{name, layer.Key}
			if s.plant.joinsKeys {
				c = cell{name, strings.TrimSpace(layer.Key)}
			}
			if seen[c] {
				return nil, stint.ErrLayers
			}
			seen[c] = true
			all = append(all, c)
		}
	}
	if len(all) == 0 || len(all) > stint.MaxLayers {
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

func (s *naive) Decide(_ context.Context, op stint.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	d, _, err := s.decide(op, layers, cost)
	return d, err
}

func (s *naive) decide(op stint.Op, layers []stint.Layer, cost int64) (d stint.Decision, h *held, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cells, err := s.cells(layers, cost)
	if err != nil {
		return d, nil, err
	}
	now := s.now()
	if op == stint.OpTakeUpTo && !s.plant.upToIsTake {
		most := cost
		for _, c := range cells {
			most = min(most, s.meters[c.limit].Answer(s.state(c, 0), now, 0, true).Remaining)
		}
		cost = max(most, min(cost, 1))
	}
	var denied stint.Mask
	for i, c := range cells {
		m, state := s.meters[c.limit], s.state(c, cost)
		if m.Admits(state, now, cost) {
			if s.plant.chargesFirst && op != stint.OpPeek && i+1 < len(cells) {
				defer func() {
					if denied != 0 {
						m.Charge(state, now, cost)
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
	h = &held{cells: cells, cost: cost}
	for i, c := range cells {
		layer, mark := s.layer(op, c, now, cost, denied == 0)
		h.marks = append(h.marks, mark)
		if i == 0 {
			d = layer
		} else {
			d.Join(&layer)
		}
	}
	d.Denied = denied
	if d.Allowed && op != stint.OpPeek {
		d.Taken = cost
	}
	return d, h, nil
}

// layer charges one layer, if it is to be, and gives its answer.
func (s *naive) layer(op stint.Op, c cell, now, cost int64, allowed bool) (d stint.Decision, mark stint.Mark) {
	m, state := s.meters[c.limit], s.state(c, cost)
	delay := m.Delay(state, now, cost)
	counts := m.CountsDenied() && !s.plant.ignoresDenied || s.plant.chargesDenials
	if op != stint.OpPeek && (allowed || counts) || s.plant.peekCharges && allowed {
		mark = m.Charge(state, now, cost)
	}
	d = s.coarse(m.Answer(state, now, cost, allowed))
	if allowed {
		d.Delay = s.up(delay)
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

func (s *naive) Reserve(_ context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.Token, error) {
	if ttl <= 0 {
		return stint.Decision{}, "", fmt.Errorf("ttl %v", ttl)
	}
	d, h, err := s.decide(stint.OpTake, layers, cost)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.expires = math.MaxInt64
	if now := s.now(); int64(ttl) < h.expires-now {
		h.expires = now + int64(ttl)
	}
	token := stint.Token(fmt.Sprint("token ", len(s.tokens)))
	s.tokens[token] = h
	return d, token, nil
}

func (s *naive) Settle(_ context.Context, token stint.Token, cost int64) (stint.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, h := s.now(), s.tokens[token]
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
	d := s.adjust(h.cells, func(i int, m *stint.Meter, c cell) {
		switch {
		case cost > h.cost:
			m.Charge(s.state(c, cost-h.cost), now, cost-h.cost)
		case s.plant.mints:
			m.Refund(s.state(c, 0), now, h.cost-cost)
		default:
			m.GiveBack(s.state(c, 0), now, h.marks[i], h.cost-cost)
		}
	})
	h.answer = &d
	return d, nil
}

func (s *naive) adjust(cells []cell, do func(i int, m *stint.Meter, c cell)) (d stint.Decision) {
	for i, c := range cells {
		m := s.meters[c.limit]
		do(i, m, c)
		layer := s.coarse(m.Answer(s.state(c, 0), s.now(), 0, true))
		if i == 0 {
			d = layer
		} else {
			d.Join(&layer)
		}
	}
	return d
}

func (s *naive) Refund(_ context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cells, err := s.cells(layers, cost)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.adjust(cells, func(_ int, m *stint.Meter, c cell) { m.Refund(s.state(c, 0), s.now(), cost) }), nil
}

func (s *naive) Reset(_ context.Context, layers []stint.Layer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cells, err := s.cells(layers, 0)
	if err != nil {
		return err
	}
	for _, c := range cells {
		delete(s.states, c)
		for token, h := range s.tokens {
			for _, other := range h.cells {
				if other == c {
					delete(s.tokens, token)
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
