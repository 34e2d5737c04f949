package memstore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// Open reservations in a snapshot. A shard is copied at a moment of its own, so
// the open charges of a key are copied together with its state, and who may
// settle them at the end: a reservation that has been settled meanwhile stands
// as charged in what was copied before, and one of which a part was charged
// only after its shard was copied is no part of the snapshot.

// savedOpen is the open reservations that a snapshot holds.
type savedOpen struct {
	charges      map[savedPlace][]uint64 // as Reservations.AppendTo has them
	reservations []savedReservation
}

// A savedPlace is a state, by the place of its limit in the snapshot.
type savedPlace struct {
	limit uint32
	on    uint32
	hash  uint64 // of the key, or the number of the cell
}

// What a part was charged on.
const (
	onNothing = iota // that it could be given back from
	onKey
	onCell
)

type savedReservation struct {
	id            stint.ReservationID
	cost, expires int64
	parts         []savedPart
}

type savedPart struct {
	limit, on uint32
	hash      uint64
	weight    int64
	mark      meter.ChargeRef
}

func (l *savedPart) place() savedPlace {
	at := savedPlace{l.limit, l.on, l.hash}
	if l.on == onCell {
		at.hash = l.hash>>(64-cellBits) + 1
	}
	return at
}

// openCopy is a copy of the open reservations in the making.
type openCopy struct {
	savedOpen
	limits map[*limit]*copiedLimit
	copied map[*openKey]bool
}

type copiedLimit struct {
	index uint32
	upTo  [mostShards]uint64 // the last charge of a reservation that was copied
}

func newOpenCopy() *openCopy {
	return &openCopy{
		savedOpen: savedOpen{charges: make(map[savedPlace][]uint64)},
		limits:    make(map[*limit]*copiedLimit),
		copied:    make(map[*openKey]bool),
	}
}

// charged copies the open charges of a table, together with its states.
func (c *openCopy) charged(s *Store, sh *shard, t *table, of *copiedLimit) {
	if t.open == 0 {
		return
	}
	o := sh.opened[t.open-1]
	for h, k := range o.keys {
		c.charges[savedPlace{of.index, onKey, h}] = k.AppendTo(nil)
		c.copied[k] = true
	}
	if o.shared != t.cells {
		return
	}
	for i, k := range o.cells {
		c.charges[savedPlace{of.index, onCell, uint64(sh.index*s.cells + i + 1)}] = k.AppendTo(nil)
		c.copied[k] = true
	}
}

// copyOpen copies who may settle the charges, those that expire first in front.
func (c *openCopy) copyOpen(s *Store) {
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	all.expire(s, s.clock.now())
	for _, r := range all.byEnd {
		if !r.settled {
			c.add(s, r)
		}
	}
	slices.SortStableFunc(c.reservations, func(a, b savedReservation) int { return cmp.Compare(a.expires, b.expires) })
}

func (c *openCopy) add(s *Store, r *reservation) {
	saved := savedReservation{id: r.id, cost: r.cost, expires: r.expires}
	for i := range r.parts {
		l := &r.parts[i]
		of := c.limits[l.limit]
		if of == nil || l.number > of.upTo[l.sh.index] {
			return
		}
		saved.parts = append(saved.parts, savedPart{of.index, c.on(s, l), l.hash, l.weight, l.mark})
	}
	c.reservations = append(c.reservations, saved)
}

// on returns what a part was charged on.
func (c *openCopy) on(s *Store, l *reservedPart) uint32 {
	l.sh.mu.Lock()
	defer l.sh.mu.Unlock()
	t := l.limit.tables[l.sh.index]
	switch {
	case t == nil || !l.stands(s, t) || l.open != nil && !c.copied[l.open]:
		return onNothing
	case l.cells != nil:
		return onCell
	}
	return onKey
}

func (w *writer) open(o *savedOpen) {
	w.uint32(uint32(len(o.charges)))
	for at, words := range o.charges {
		w.uint32(at.limit)
		w.uint32(at.on)
		w.uint64(at.hash)
		w.uint32(uint32(len(words)))
		for _, word := range words {
			w.uint64(word)
		}
	}
	w.uint32(uint32(len(o.reservations)))
	for _, r := range o.reservations {
		w.text(string(r.id))
		w.uint64(uint64(r.cost))
		w.uint64(uint64(r.expires))
		w.uint32(uint32(len(r.parts)))
		for _, l := range r.parts {
			w.uint32(l.limit)
			w.uint32(l.on)
			w.uint64(l.hash)
			w.uint64(uint64(l.weight))
			w.uint64(l.mark[0])
			w.uint64(l.mark[1])
		}
	}
}

func (r *reader) open(limits int) (o savedOpen) {
	o.charges = make(map[savedPlace][]uint64)
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		at := savedPlace{r.uint32(), r.uint32(), r.uint64()}
		words := r.words()
		if o.charges[at] != nil {
			r.fail("the open charges of a state twice")
		}
		o.charges[at] = words
	}
	ids := make(map[stint.ReservationID]bool)
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		v := savedReservation{id: stint.ReservationID(r.text()), cost: int64(r.uint64()), expires: int64(r.uint64())}
		if v.parts = r.parts(limits); v.id == "" || ids[v.id] || v.cost < 0 {
			r.fail("a reservation of %d without an ID of its own", v.cost)
		}
		ids[v.id] = true
		o.reservations = append(o.reservations, v)
	}
	return o
}

// words reads a count and that many words.
func (r *reader) words() (words []uint64) {
	n := r.uint32()
	if n > mostWords {
		r.fail("%d words of open charges", n)
	}
	for ; n > 0 && r.err == nil; n-- {
		words = append(words, r.uint64())
	}
	return words
}

func (r *reader) parts(limits int) (parts []savedPart) {
	n := r.uint32()
	if n == 0 || n > stint.MaxLimits {
		r.fail("a reservation of %d parts", n)
	}
	for ; n > 0 && r.err == nil; n-- {
		l := savedPart{limit: r.uint32(), on: r.uint32(), hash: r.uint64(), weight: int64(r.uint64())}
		l.mark = meter.ChargeRef{r.uint64(), r.uint64()}
		if r.err == nil && (int64(l.limit) >= int64(limits) || l.on > onCell || l.hash == 0 || l.weight < 1) {
			r.fail("a part of a reservation that cannot be")
		}
		if slices.ContainsFunc(parts, func(o savedPart) bool { return o.limit == l.limit && o.hash == l.hash }) {
			r.fail("a reservation of the same key under a limit twice")
		}
		parts = append(parts, l)
	}
	return parts
}

// A loaded snapshot is one that was read whole.
type loaded struct {
	seed   seed
	keys   int // of all limits
	names  []*savedName
	limits []*savedLimit // of all, in the order of the snapshot
	open   savedOpen
	full   int                                // reservations for which there is no room
	states map[savedPlace]*meter.Reservations // of those for which there is
}

// reopen restores the reservations that may still be settled at time now. If there
// are more than most, it restores those that expire last.
func (in *loaded) reopen(now int64, most int) error {
	rs := slices.DeleteFunc(in.open.reservations, func(r savedReservation) bool { return r.expires <= now })
	in.full = max(len(rs)-most, 0)
	rs = rs[in.full:]
	in.open.reservations = rs
	marks := make(map[savedPlace][]meter.ChargeRef)
	for _, r := range rs {
		for i := range r.parts {
			l := &r.parts[i]
			if l.on != onNothing && in.limits[l.limit].meter.Rewrites() {
				marks[l.place()] = append(marks[l.place()], l.mark)
			}
		}
	}
	in.states = make(map[savedPlace]*meter.Reservations, len(marks))
	for at, held := range marks {
		open := &meter.Reservations{}
		if !in.limits[at.limit].meter.Reopen(open, in.open.charges[at], held) {
			return fmt.Errorf("open charges that limit %q cannot have", in.limits[at.limit].given)
		}
		in.states[at] = open
	}
	return nil
}

// named gives the limit the name that it is bound by, if that is its own.
func (l *savedLimit) named() error {
	_, id, _ := strings.Cut(l.name, apart)
	if l.given.ID() == id {
		return nil
	}
	named := l.given.WithName(id)
	switch err := named.Validate(); {
	case err != nil:
		return err
	case named.ID() != id:
		return fmt.Errorf("a limit known as %q", l.name)
	}
	l.given = named
	return nil
}

// reopen makes the reservations of a snapshot known. The locks of the store and
// of its reservations are held.
func (s *Store) reopen(in *loaded) {
	s.fullReservations.Add(uint64(in.full))
	bounds := make(map[uint32]*bound)
	for _, saved := range in.open.reservations {
		r := &reservation{id: saved.id, cost: saved.cost, expires: saved.expires, parts: make([]reservedPart, len(saved.parts))}
		for i := range saved.parts {
			l := &saved.parts[i]
			b := bounds[l.limit]
			if b == nil {
				b = s.bound(&in.limits[l.limit].limit.form.all)
				bounds[l.limit] = b
			}
			of := in.limits[l.limit].limit
			sh := &s.shards[s.shard(l.hash)]
			r.parts[i] = reservedPart{place: place{of.form.name, l.hash}, limit: of, bound: b, sh: sh, weight: l.weight, of: r}
			of.form.holders.Add(1)
			r.parts[i].reopen(s, l, in.states[l.place()])
		}
		s.reservations.add(r)
	}
}

// reopen puts the part back on the state that it was charged on, if that still
// is there. A key whose units were refunded is not, and may be charged again in
// the same window.
func (l *reservedPart) reopen(s *Store, saved *savedPart, open *meter.Reservations) {
	if saved.on == onNothing {
		return
	}
	l.sh.mu.Lock()
	defer l.sh.mu.Unlock()
	t := l.sh.table(l.limit)
	own := t.find(l.hash) != nil
	switch {
	case saved.on == onKey && (own || open == nil):
	case saved.on == onCell && !own && t.cells != nil:
		l.cells = t.cells
	default:
		return
	}
	l.meter, l.mark, l.generation = t.meter, saved.mark, l.sh.generation(l.limit, l.hash)
	if open != nil {
		if l.open = l.sh.keepOpen(s, t, l.hash); l.open.Len() == 0 {
			l.open.Reservations = *open
		}
	}
}
