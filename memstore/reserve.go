package memstore

import (
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/stint-dev/stint"
)

// reservations are the costs that are still to be settled. Its lock is taken
// before any shard's.
type reservations struct {
	mu    sync.Mutex
	open  map[stint.Token]*reservation
	byEnd ends
	most  int
}

// ends is a heap of when reservations expire, the first on top. What is reset
// stays in it until then.
type ends []end

type end struct {
	expires int64
	token   stint.Token
}

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].expires < e[j].expires }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

type reservation struct {
	layers  []reservedLayer
	cost    int64
	expires int64 // on the store's clock
	settled bool
	answer  stint.Decision // once settled
}

type reservedLayer struct {
	limit *limit
	bound *bound       // keeps the limit
	meter *stint.Meter // that charged
	hash  uint64
	key   string
	mark  stint.Mark

	weight int64
}

func (rs *reservations) init(most int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.open, rs.byEnd, rs.most = make(map[stint.Token]*reservation), nil, most
}

func (rs *reservations) len() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return len(rs.open)
}

// room drops the reservations that have expired and reports whether one more
// may be made.
func (rs *reservations) room(now int64) bool {
	for len(rs.byEnd) > 0 && rs.byEnd[0].expires <= now {
		delete(rs.open, heap.Pop(&rs.byEnd).(end).token)
	}
	return len(rs.byEnd) < rs.most
}

func (rs *reservations) add(token stint.Token, r *reservation) {
	rs.open[token] = r
	heap.Push(&rs.byEnd, end{r.expires, token})
}

// Reserve implements [stint.Store].
func (s *Store) Reserve(_ context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.Token, error) {
	if ttl <= 0 {
		return stint.Decision{}, "", errTTL
	}
	rs, err := s.requests(nil, layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	now := s.clock.now()
	if !s.closed.Load() && !all.room(now) {
		s.fullReservations.Add(1)
		return stint.Decision{}, "", fmt.Errorf("%w: %d reservations are open", stint.ErrFull, len(all.byEnd))
	}
	marks := make([]stint.Mark, len(rs))
	d, err := s.decide(stint.OpTake, rs, cost, marks)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	r := &reservation{cost: cost, expires: now + min(int64(ttl), math.MaxInt64-max(now, 0)), layers: make([]reservedLayer, len(rs))}
	for i := range rs {
		r.layers[i] = reservedLayer{rs[i].limit, rs[i].bound, rs[i].meter, rs[i].hash, rs[i].key, marks[i], rs[i].weight}
	}
	token := stint.Token(rand.Text())
	all.add(token, r)
	return d, token, nil
}

// Settle implements [stint.Store].
func (s *Store) Settle(_ context.Context, token stint.Token, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if s.closed.Load() {
		return stint.Decision{}, stint.ErrClosed
	}
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	r := all.open[token]
	if r == nil || r.expires <= s.clock.now() {
		return stint.Decision{}, stint.ErrReservation
	}
	if r.settled {
		return r.answer, nil
	}
	rs := make([]request, len(r.layers))
	for i, l := range r.layers {
		rs[i] = l.bound.request(l.limit, l.hash, l.key)
		rs[i].weight = l.weight
	}
	r.answer = s.adjust(rs, func(i int, now int64) {
		reserved, _ := times(r.cost, rs[i].weight)
		actual, _ := times(cost, rs[i].weight)
		if actual > reserved {
			rs[i].charge(s, now, actual-reserved)
		} else {
			r.layers[i].giveBack(s, &rs[i], now, reserved-actual)
		}
	})
	r.settled = true
	return r.answer, nil
}

// giveBack returns units of the reservation's charge, unless the limit has
// changed since: what the mark means is then not known.
func (l *reservedLayer) giveBack(s *Store, r *request, now, units int64) {
	r.seek(s, now)
	if t := r.table(); r.slot != nil && t.meter == l.meter {
		t.meter.GiveBack(t.state(r.sh, r.slot), r.at, l.mark, units)
	}
}

// adjust does something to every layer at one instant and answers with the
// state after it.
func (s *Store) adjust(rs []request, do func(i int, now int64)) stint.Decision {
	defer s.watchers.roomMade(rs)
	now := s.lock(rs)
	defer s.unlock(rs)
	var d stint.Decision
	for i := range rs {
		do(i, now)
		rs[i].seek(s, now)
		answer := rs[i].table().meter.Answer(rs[i].state(s), rs[i].at, 0, true)
		if rs[i].answer != nil {
			*rs[i].answer = answer
		}
		join(&d, &answer, rs[i].weight, i)
	}
	return d
}

// Refund implements [stint.Store].
func (s *Store) Refund(_ context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if s.closed.Load() {
		return stint.Decision{}, stint.ErrClosed
	}
	rs, err := s.requests(nil, layers)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.adjust(rs, func(i int, now int64) {
		r := &rs[i]
		if r.seek(s, now); r.slot != nil {
			t := r.table()
			units, _ := times(cost, r.weight)
			t.meter.Refund(t.state(r.sh, r.slot), r.at, units)
		}
	}), nil
}

// Reset implements [stint.Store]. Reservations on the keys are forgotten too.
// A key on an overflow cell shares that with others, and keeps what it says.
func (s *Store) Reset(_ context.Context, layers []stint.Layer) error {
	if s.closed.Load() {
		return stint.ErrClosed
	}
	rs, err := s.requests(nil, layers)
	if err != nil {
		return err
	}
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	for token, open := range all.open {
		if open.touches(rs) {
			delete(all.open, token)
		}
	}
	defer s.watchers.roomMade(rs)
	s.lock(rs)
	defer s.unlock(rs)
	for i := range rs {
		if t := rs[i].limit.tables[rs[i].sh.index]; t != nil {
			t.delete(rs[i].sh, rs[i].hash)
		}
	}
	return nil
}

func (r *reservation) touches(rs []request) bool {
	for _, l := range r.layers {
		for i := range rs {
			if rs[i].limit == l.limit && rs[i].hash == l.hash {
				return true
			}
		}
	}
	return false
}
