package memstore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A snapshot holds open reservations in two pieces. Each shard is copied at a moment of its
// own, so the open charges of a key are copied with its state. The reservations, which may
// settle those charges, are copied last. One that was settled meanwhile stands as charged in
// the shards copied before; one that charged a shard after its copy is left out.

// savedOpen is the open reservations in a snapshot.
type savedOpen struct {
	charges      map[savedStateKey][]uint64 // as Reservations.AppendTo writes them
	reservations []savedReservation
}

// A savedStateKey names a state in a snapshot.
type savedStateKey struct {
	account uint32 // its index in the snapshot
	on      uint32 // onKey or onCell
	hash    uint64 // of the key, or the number of the cell
}

// What a part was charged on.
const (
	onNothing = iota // no state that is still there: it gives nothing back
	onKey
	onCell
)

type savedReservation struct {
	id            stint.ReservationID
	cost, expires int64
	parts         []savedPart
}

type savedPart struct {
	account, number, on uint32
	hash                uint64
	weight              int64
	mark                meter.ChargeRef
}

func (l *savedPart) stateKey() savedStateKey {
	at := savedStateKey{l.account, l.on, l.hash}
	if l.on == onCell {
		at.hash = l.hash>>(64-cellBits) + 1
	}
	return at
}

// openCopy collects the open reservations while Save copies one shard after the other.
type openCopy struct {
	savedOpen
	accounts map[*account]*copiedAccount
	copied   map[*meter.Reservations]bool
}

type copiedAccount struct {
	index  uint32
	limits map[uint64]*limit
	upTo   [mostShards]uint64 // by shard: the number of the last reserved charge in its copy
}

func newOpenCopy() *openCopy {
	return &openCopy{
		savedOpen: savedOpen{charges: make(map[savedStateKey][]uint64)},
		accounts:  make(map[*account]*copiedAccount),
		copied:    make(map[*meter.Reservations]bool),
	}
}

// charged copies the open charges of a table, together with its states.
func (c *openCopy) charged(s *Store, sh *shard, t *table, of *copiedAccount) {
	if t.open == 0 {
		return
	}
	o := sh.opened[t.open-1]
	for h, k := range o.keys {
		c.charges[savedStateKey{of.index, onKey, h}] = k.AppendTo(nil)
		c.copied[k] = true
	}
	if o.shared != t.cells {
		return
	}
	for i, k := range o.cells {
		c.charges[savedStateKey{of.index, onCell, uint64(sh.index*s.cells + i + 1)}] = k.AppendTo(nil)
		c.copied[k] = true
	}
}

// copyOpen copies the reservations, which may settle the charges, by when they expire.
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
		of := c.accounts[l.account]
		if of == nil || of.limits[l.limit.number] != l.limit || l.number > of.upTo[l.sh.index] {
			return
		}
		saved.parts = append(saved.parts, savedPart{of.index, uint32(l.limit.number), c.on(s, l), l.hash, l.weight, l.mark})
	}
	c.reservations = append(c.reservations, saved)
}

// on returns what a part was charged on.
func (c *openCopy) on(s *Store, l *reservedPart) uint32 {
	l.sh.mu.Lock()
	defer l.sh.mu.Unlock()
	t := l.account.in(l.sh.index)
	switch {
	case t == nil || !l.stands(s, t) || l.limit.meter.Rewrites() && !c.copied[l.open]:
		return onNothing
	case l.cells != nil:
		return onCell
	}
	return onKey
}

func (w *writer) open(o *savedOpen) {
	w.uint32(uint32(len(o.charges)))
	for at, words := range o.charges {
		w.uint32(at.account)
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
			w.uint32(l.account)
			w.uint32(l.number)
			w.uint32(l.on)
			w.uint64(l.hash)
			w.uint64(uint64(l.weight))
			w.uint64(l.mark[0])
			w.uint64(l.mark[1])
		}
	}
}

func (r *reader) open(accounts []*savedAccount) (o savedOpen) {
	o.charges = make(map[savedStateKey][]uint64)
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		at := savedStateKey{r.uint32(), r.uint32(), r.uint64()}
		words := r.words()
		if o.charges[at] != nil {
			r.fail("the open charges of a state twice")
		}
		o.charges[at] = words
	}
	ids := make(map[stint.ReservationID]bool)
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		v := savedReservation{id: stint.ReservationID(r.text()), cost: int64(r.uint64()), expires: int64(r.uint64())}
		if v.parts = r.parts(accounts); v.id == "" || ids[v.id] || v.cost < 0 {
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

func (r *reader) parts(accounts []*savedAccount) (parts []savedPart) {
	n := r.uint32()
	if n == 0 || n > stint.MaxLimits {
		r.fail("a reservation of %d parts", n)
	}
	for ; n > 0 && r.err == nil; n-- {
		l := savedPart{account: r.uint32(), number: r.uint32(), on: r.uint32(), hash: r.uint64(), weight: int64(r.uint64())}
		l.mark = meter.ChargeRef{r.uint64(), r.uint64()}
		if r.err == nil && (int64(l.account) >= int64(len(accounts)) || accounts[l.account].limits[l.number] == nil || l.on > onCell || l.hash == 0 || l.weight < 1) {
			r.fail("a part of a reservation that cannot be")
		}
		if slices.ContainsFunc(parts, func(o savedPart) bool { return o.account == l.account && o.hash == l.hash }) {
			r.fail("a reservation of the same key under a limit twice")
		}
		parts = append(parts, l)
	}
	return parts
}

// loaded is a snapshot that was read whole.
type loaded struct {
	seed     seed
	keys     int // of all accounts
	accounts []*savedAccount
	open     savedOpen
	full     int                                   // how many reservations the store has no room for
	states   map[savedStateKey]*meter.Reservations // the open charges of the others
}

// of returns the limit that a part was charged under.
func (in *loaded) of(l *savedPart) *savedLimit { return in.accounts[l.account].limits[l.number] }

// reopen restores the reservations that may still be settled at time now. If there
// are more than most, it restores those that expire last.
func (in *loaded) reopen(now int64, most int) error {
	rs := slices.DeleteFunc(in.open.reservations, func(r savedReservation) bool { return r.expires <= now })
	in.full = max(len(rs)-most, 0)
	rs = rs[in.full:]
	in.open.reservations = rs
	marks, meters := make(map[savedStateKey][]meter.ChargeRef), make(map[savedStateKey]*meter.Meter)
	for _, r := range rs {
		for i := range r.parts {
			l := &r.parts[i]
			if m := in.of(l).meter; l.on != onNothing && m.Rewrites() {
				at := l.stateKey()
				if marks[at] = append(marks[at], l.mark); meters[at] == nil {
					meters[at] = m
				}
				if !m.SameNumbers(meters[at]) {
					return fmt.Errorf("open charges under %q of several numbers", in.accounts[l.account].name)
				}
			}
		}
	}
	in.states = make(map[savedStateKey]*meter.Reservations, len(marks))
	for at, held := range marks {
		open := &meter.Reservations{}
		if !meters[at].Reopen(open, in.open.charges[at], held) {
			return fmt.Errorf("open charges under %q that no limit can have", in.accounts[at.account].name)
		}
		in.states[at] = open
	}
	return nil
}

// reopen makes the reservations of a snapshot known. The locks of the store and
// of its reservations are held.
func (s *Store) reopen(in *loaded) {
	s.fullReservations.Add(uint64(in.full))
	for _, saved := range in.open.reservations {
		r := &reservation{id: saved.id, cost: saved.cost, expires: saved.expires, parts: make([]reservedPart, len(saved.parts))}
		for i := range saved.parts {
			l := &saved.parts[i]
			of := in.of(l).limit
			sh := &s.shards[s.shard(l.hash)]
			r.parts[i] = reservedPart{stateKey: stateKey{of.account, l.hash}, limit: of, sh: sh, weight: l.weight, of: r}
			of.holders.Add(1)
			r.parts[i].reopen(s, l, in.states[l.stateKey()])
		}
		s.reservations.add(r)
	}
}

// reopen links the part to the state that it was charged on, if that is there. The state
// of a key whose units were all refunded is not in the snapshot: the part then gives
// nothing back from what the key is charged later, in the same window.
func (l *reservedPart) reopen(s *Store, saved *savedPart, open *meter.Reservations) {
	if saved.on == onNothing {
		return
	}
	l.sh.mu.Lock()
	defer l.sh.mu.Unlock()
	t := l.sh.table(l.account)
	slot := t.find(l.hash)
	own := slot != nil
	switch {
	case own && !t.drain(slot).SameNumbers(l.limit.meter):
		return
	case saved.on == onKey && (own || open == nil):
	case saved.on == onCell && !own && t.cells != nil:
		l.cells = t.cells
	default:
		return
	}
	l.mark = saved.mark
	if open != nil {
		if l.open = l.sh.keepOpen(s, t, l.hash); l.open.Len() == 0 {
			*l.open = *open
		}
	}
}
