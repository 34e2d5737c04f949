package memstore

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A snapshot is, in little-endian order:
//
//	magic    8 bytes, "stintsnp"
//	version  uint32, 1
//	seed     4 × uint64
//	accounts uint32, and for each:
//	  name     length uint32, bytes
//	  own      the own name of its limits, as the name; empty for none. Of bans a NUL, and
//	           the ID of the limits that they are under
//	  keys     until a hash of 0: hash uint64; number uint32, of the limit whose
//	           numbers the state has, 0 where it has none; words uint32, words × uint64
//	  cells    the overflow cells, as the keys: for the hash, 1 more than the top bits
//	           of the hashes that share the cell
//	  limits   uint32, and for each: number uint32, and its text, as the name
//	charges  of open reservations: uint32, and for each state that has some:
//	  account, on   uint32 twice: which of the accounts above, and 1 for a key, 2 for
//	                a cell
//	  hash          uint64, as above
//	  words         uint32, words × uint64: meter.Reservations
//	open     the reservations: uint32, and for each:
//	  id              length uint32, bytes
//	  cost, expires   int64 twice
//	  parts           uint32, and for each: account, the limit's number and on,
//	                  3 × uint32, hash uint64, weight int64, mark 2 × uint64
//	sum      uint32, CRC-32C of all before it
const (
	snapshotMagic   = "stintsnp"
	snapshotVersion = 1
	mostText        = 1 << 10
	mostWords       = 1 << 22
)

// ErrSnapshot is for a snapshot that is torn, damaged or of another version.
var ErrSnapshot = errors.New("memstore: unusable snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A savedAccount is what a snapshot holds of an account.
type savedAccount struct {
	name, own string
	limits    map[uint32]*savedLimit // by number
	keys      savedStates
	cells     savedStates
}

// A savedLimit is a limit of an account in a snapshot.
type savedLimit struct {
	given stint.Limit
	meter *meter.Meter
	limit *limit // in the store, once the snapshot is restored
}

// savedStates are states by the hash of their key, or by their cell.
type savedStates struct {
	of    []savedKey
	words []uint64 // all states, one after the other
}

type savedKey struct {
	hash          uint64
	number, words uint32
}

func (s *savedStates) add(hash, number uint64, state []uint64) {
	s.of = append(s.of, savedKey{hash, uint32(number), uint32(len(state))})
	s.words = append(s.words, state...)
}

func (s *savedStates) all() iter.Seq2[savedKey, []uint64] {
	return func(yield func(savedKey, []uint64) bool) {
		words := s.words
		for _, k := range s.of {
			if !yield(k, words[:k.words:k.words]) {
				return
			}
			words = words[k.words:]
		}
	}
}

// Save writes what all keys have used, including those on overflow cells. Each key is
// written as it stands at some moment while Save runs; a shard is locked only while it
// is copied. The snapshot has the open reservations, except those made while Save runs;
// one that is settled meanwhile stands as charged in the shards that were copied before.
// It has no settled ones. It holds no keys, but their hashes, and the secret that they
// are hashed with. If the store is closed, before or while Save runs, the error is
// [stint.ErrClosed].
func (s *Store) Save(w io.Writer) error {
	if s.closed.Load() {
		return stint.ErrClosed
	}
	out := &writer{w: bufio.NewWriterSize(w, 1<<16), sum: crc32.New(castagnoli)}
	out.bytes([]byte(snapshotMagic))
	out.uint32(snapshotVersion)
	for _, k := range s.seed {
		out.uint64(k)
	}
	open := newOpenCopy()
	accounts := s.known()
	out.uint32(uint32(len(accounts)))
	for _, a := range accounts {
		a.save(s, out, open)
	}
	open.copyOpen(s)
	out.open(&open.savedOpen)
	out.uint32(out.sum.Sum32())
	if s.closed.Load() {
		return stint.ErrClosed // the last shards may have been copied empty
	}
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.err
}

// known returns the accounts, sorted.
func (s *Store) known() (all []*account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseSome(len(s.list), true)
	for _, label := range slices.Sorted(maps.Keys(s.accounts)) {
		all = append(all, s.accounts[label])
	}
	return all
}

// save writes an account. Each shard is copied at one moment. The limits are written
// last: a limit that is bound meanwhile may be one that a copied state drains by.
func (a *account) save(s *Store, out *writer, open *openCopy) {
	of := &copiedAccount{index: uint32(len(open.accounts)), limits: make(map[uint64]*limit)}
	open.accounts[a] = of
	for _, l := range a.all() {
		of.limits[l.number] = l
	}
	out.text(a.name.text)
	out.text(a.own())
	var cells savedStates
	for i := range s.shards {
		keys := a.copyShard(s, &s.shards[i], of, &cells, open)
		out.states(&keys)
	}
	out.uint64(0)
	out.states(&cells)
	out.uint64(0)
	out.uint32(uint32(len(of.limits)))
	for number, l := range of.limits {
		out.uint32(uint32(number))
		out.text(l.given.String())
	}
}

// own returns the own name of the account's limits, if they have one.
func (a *account) own() string {
	if a.banned != "" {
		return apart + a.banned
	}
	for _, l := range a.all() {
		if l.given != l.given.WithName("") {
			return l.given.Name()
		}
	}
	return ""
}

func (w *writer) states(s *savedStates) {
	for k, state := range s.all() {
		w.uint64(k.hash)
		w.uint32(k.number)
		w.uint32(uint32(len(state)))
		for _, word := range state {
			w.uint64(word)
		}
	}
}

// copyShard returns the keys of one shard, and adds the cells and the open charges.
func (a *account) copyShard(s *Store, sh *shard, of *copiedAccount, cells *savedStates, open *openCopy) (keys savedStates) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	of.upTo[sh.index] = sh.reserved
	t := a.in(sh.index)
	if t == nil {
		return keys
	}
	open.charged(s, sh, t, of)
	at := s.at(t, sh.tick(s.clock.now()))
	for j := range t.segments {
		for h, slot := range t.slots(t.segments[j]) {
			t.copyState(sh, slot, h, at, of, &keys)
		}
	}
	if t.cells == nil {
		return keys
	}
	for i := range s.cells {
		if cell := t.cellAt(i); !t.indirect() || cell[0] != 0 {
			t.copyState(sh, cell, uint64(sh.index*s.cells+i+1), at, of, cells)
		}
	}
	return keys
}

// copyState copies a state unless it is as if never seen.
func (t *table) copyState(sh *shard, slot []uint64, hash uint64, at int64, of *copiedAccount, into *savedStates) {
	if t.idle(sh, slot, at) {
		return
	}
	if !t.meter.Drains() {
		into.add(hash, 0, t.state(sh, slot))
		return
	}
	number := t.number(slot)
	if !t.numbered {
		number = t.owner.numberOf(t.meter)
	}
	l := t.owner.of(number)
	if of.limits[number] == nil {
		of.limits[number] = l
	}
	if of.limits[number] == l { // else a released number is in use again for another limit
		into.add(hash, number, slot[:l.meter.Words()])
	}
}

// Load reads a snapshot into a store that has bound no limits yet. The snapshot brings
// its limits along with what their keys have used. Reservations that have not expired can
// be settled at once. If there are more than Options.MaxReservations, those that expire
// last are kept, and the others stand as charged (Stats.FullReservations). After an error
// the store is as empty as before; the error matches [ErrSnapshot] if the snapshot is bad.
func (s *Store) Load(r io.Reader) error {
	switch {
	case s.shards == nil:
		return errZero
	case s.closed.Load():
		return stint.ErrClosed
	}
	from := &reader{r: bufio.NewReaderSize(r, 1<<16), sum: crc32.New(castagnoli)}
	in := from.snapshot()
	if from.err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, from.err)
	}
	if most := len(s.shards) * s.shards[0].maxKeys; in.keys > most {
		return fmt.Errorf("memstore: the snapshot has %d keys, this store holds %d (Options.MaxKeys)", in.keys, most)
	}
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	if err := in.reopen(s.clock.now(), all.most); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed.Load():
		return stint.ErrClosed
	case len(s.names) > 0:
		return errors.New("memstore: Load comes before limits are bound")
	}
	s.seed = in.seed
	for _, a := range in.accounts {
		s.restore(a)
	}
	s.reopen(in)
	return nil
}

// restore makes an account of a snapshot known, with its keys. The store's lock is
// held.
func (s *Store) restore(a *savedAccount) {
	now := s.clock.now()
	for _, number := range slices.Sorted(maps.Keys(a.limits)) {
		l := a.limits[number]
		if id, bans := strings.CutPrefix(a.own, apart); bans {
			l.limit = s.banOf(a.name, id, l.given, l.meter)
		} else {
			l.limit = s.limit(a.name, l.given, l.meter)
		}
	}
	for k, state := range a.keys.all() {
		s.shards[s.shard(k.hash)].restore(s, a.limitOf(k), k.hash, state, now, false)
	}
	for k, state := range a.cells.all() {
		h := (k.hash - 1) << (64 - cellBits) // one of the hashes that share the cell
		s.shards[s.shard(h)].restore(s, a.limitOf(k), h, state, now, true)
	}
}

// limitOf returns the limit that a state drains by, or any limit if it drains by none.
func (a *savedAccount) limitOf(k savedKey) *limit {
	for number, l := range a.limits {
		if k.number == 0 || k.number == number {
			return l.limit
		}
	}
	return nil
}

// restore gives a key, or the cell of its hash, its state in a snapshot.
func (sh *shard) restore(s *Store, l *limit, h uint64, state []uint64, now int64, cell bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table(l.account)
	at := s.at(t, sh.tick(now))
	if l.meter.Idle(state, at) {
		return
	}
	var slot []uint64
	if cell {
		t.needCells(s)
		slot = t.cellAt(s.cellOf(h))
	} else if t.find(h) == nil {
		slot = t.insert(sh, h, at)
	}
	if slot == nil || t.indirect() && slot[0] != 0 {
		return
	}
	if t.indirect() {
		from := &sh.slab
		if cell {
			from = &sh.cells
		}
		slot[0], _ = from.alloc(t.block(max(len(state), t.meter.Words())))
	}
	if t.meter.Move(t.state(sh, slot), state); t.numbered {
		slot[t.width-1] = l.number
	}
}
