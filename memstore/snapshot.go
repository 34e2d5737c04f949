package memstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
)

// A snapshot is, in little-endian order:
//
//	magic    8 bytes, "stintsnp"
//	version  uint32, 3
//	seed     4 × uint64
//	limits   uint32, and for each:
//	  name, text    uint32 and so many bytes, twice
//	  keys          until a hash of 0: hash uint64, words uint32, words × uint64
//	  cells         the overflow cells, in the same way: for the hash, 1 more
//	                than the top bits of the hashes that share the cell
//	charges  of open reservations: uint32, and for each state that has some:
//	  limit, on   uint32 twice: which of the limits, and 1 for a key, 2 for a cell
//	  hash        uint64, as above
//	  words       uint32 and so many uint64: stint.Reservations
//	open     the reservations: uint32, and for each:
//	  token           uint32 and so many bytes
//	  cost, expires   int64 twice
//	  layers          uint32, and for each: limit and on as above, hash uint64,
//	                  weight int64, mark 2 × uint64
//	sum      uint32, CRC-32C of all before it
//
// Read too are version 2, which has no reservations, and version 1, which has
// no cells either.
const (
	snapshotMagic   = "stintsnp"
	snapshotVersion = 3
	mostText        = 1 << 10
	mostWords       = 1 << 22
)

// ErrSnapshot is for a snapshot that is torn, damaged or of another version.
var ErrSnapshot = errors.New("memstore: unusable snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A savedLimit is what a snapshot holds of a limit, until it is bound.
type savedLimit struct {
	name  string
	meter *stint.Meter
	keys  savedStates
	cells savedStates
}

// savedStates are states by the hash of their key, or by their cell.
type savedStates struct {
	of    []savedKey
	words []uint64 // of all, one after the other
}

type savedKey struct {
	hash  uint64
	words uint32
}

func (s *savedStates) add(hash uint64, state []uint64) {
	s.of = append(s.of, savedKey{hash, uint32(len(state))})
	s.words = append(s.words, state...)
}

func (l *savedLimit) bytes() int64 {
	return int64(8*(cap(l.keys.words)+cap(l.cells.words)) + 16*(cap(l.keys.of)+cap(l.cells.of)))
}

func (s *savedStates) all() iter.Seq2[uint64, []uint64] {
	return func(yield func(uint64, []uint64) bool) {
		words := s.words
		for _, k := range s.of {
			if !yield(k.hash, words[:k.words:k.words]) {
				return
			}
			words = words[k.words:]
		}
	}
}

// Save writes what all keys have used, those on overflow cells as well. Each
// key is written as it stands at some moment while Save runs; a shard is locked
// only while it is copied. Open reservations are part of the snapshot, but for
// those that are made while Save runs; one that is settled meanwhile stands as
// charged where it was copied before. Settled ones are not. A snapshot holds no
// keys, only their hashes, and the secret that they are hashed with. A limit
// that was loaded and is not bound yet is saved as far as it still counts. After
// [Store.Close], and if that comes while Save runs, the error is
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
	limits, unbound := s.known()
	out.uint32(uint32(len(limits) + len(unbound)))
	for _, l := range unbound {
		out.saved(l)
	}
	open := newOpenCopy()
	for n, l := range limits {
		of := &copiedLimit{index: uint32(len(unbound) + n)}
		open.limits[l] = of
		text := l.meter.Load().Limit().String()
		out.text(l.name)
		out.text(text)
		var cells savedStates
		for i := range s.shards {
			keys := s.copyShard(l, &s.shards[i], text, &cells, open)
			out.states(&keys)
		}
		out.uint64(0)
		out.states(&cells)
		out.uint64(0)
	}
	open.held(s)
	out.open(&open.savedOpen)
	out.uint32(out.sum.Sum32())
	if s.closed.Load() {
		return stint.ErrClosed // what was copied last may have been let go of
	}
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.err
}

// known returns the limits that are bound, and what a snapshot held of others.
func (s *Store) known() (bound []*limit, unbound []*savedLimit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseSome(len(s.limits))
	for _, name := range slices.Sorted(maps.Keys(s.pending)) {
		if l := s.pending[name].counting(s); l != nil {
			unbound = append(unbound, l)
		} else {
			delete(s.pending, name)
		}
	}
	return slices.Clone(s.limits), unbound
}

// counting returns what of a loaded limit still counts, nil if nothing does.
func (l *savedLimit) counting(s *Store) *savedLimit {
	t := newTable(l.meter)
	at := s.at(&t, s.clock.now())
	left := &savedLimit{name: l.name, meter: l.meter}
	for hash, state := range l.keys.all() {
		if !l.meter.Idle(state, at) {
			left.keys.add(hash, state)
		}
	}
	for hash, state := range l.cells.all() {
		if !l.meter.Idle(state, at) {
			left.cells.add(hash, state)
		}
	}
	if left.keys.of == nil && left.cells.of == nil {
		return nil
	}
	return left
}

// saved writes a limit as it was loaded.
func (w *writer) saved(l *savedLimit) {
	w.text(l.name)
	w.text(l.meter.Limit().String())
	for _, states := range [...]*savedStates{&l.keys, &l.cells} {
		w.states(states)
		w.uint64(0)
	}
}

func (w *writer) states(s *savedStates) {
	for hash, state := range s.all() {
		w.uint64(hash)
		w.uint32(uint32(len(state)))
		for _, word := range state {
			w.uint64(word)
		}
	}
}

// copyShard returns the keys of a limit in one shard, and adds the cells and
// the open charges, unless the limit has changed since its text was written: its
// next snapshot will hold them.
func (s *Store) copyShard(l *limit, sh *shard, text string, cells *savedStates, open *openCopy) (keys savedStates) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	of := open.limits[l]
	of.upTo[sh.index] = sh.reserved
	t := l.tables[sh.index]
	if t == nil || t.meter.Limit().String() != text {
		return keys
	}
	open.charged(s, sh, t, of)
	at := s.at(t, sh.tick(s.clock.now()))
	for j := range t.segments {
		for h, slot := range t.slots(t.segments[j]) {
			if !t.idle(sh, slot, at) {
				keys.add(h, t.state(sh, slot))
			}
		}
	}
	if t.cells == nil {
		return keys
	}
	for i := range s.cells {
		if cell := t.cellAt(i); (!t.indirect || cell[0] != 0) && !t.idle(sh, cell, at) {
			cells.add(uint64(sh.index*s.cells+i+1), t.state(sh, cell))
		}
	}
	return keys
}

// Load reads a snapshot into a store that has bound no limits yet. What it
// holds of a limit becomes that limit's once its name is bound, carried over
// as [stint.Meter.Adopt] says if the limit has changed. Reservations that have
// not expired can be settled at once; if there are more than
// Options.MaxReservations, those that expire last are kept, and the others stand
// as charged (Stats.FullReservations). On an error, which matches [ErrSnapshot]
// if the snapshot is to blame, the store is as empty as before.
func (s *Store) Load(r io.Reader) error {
	if s.closed.Load() {
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
	case len(s.byName) > 0:
		return errors.New("memstore: Load comes before limits are bound")
	}
	s.seed, s.pending = in.seed, in.saved
	s.reopen(in)
	return nil
}

// adoptSaved gives a limit that is bound for the first time the keys that a
// snapshot holds under its name.
func (s *Store) adoptSaved(l *limit) {
	saved := s.pending[l.name]
	if saved == nil {
		return
	}
	delete(s.pending, l.name)
	now := s.clock.now()
	from := newTable(saved.meter)
	from.indirect = false // a saved state is where a slot is
	for h, state := range saved.keys.all() {
		s.shards[s.shard(h)].adopt(s, l, h, &from, state, now)
	}
	for n, state := range saved.cells.all() {
		h := (n - 1) << (64 - cellBits) // one of those that share it
		s.shards[s.shard(h)].adoptCell(s, l, h, &from, state, now)
	}
}

// adopt gives a key of a limit what a snapshot holds of it.
func (sh *shard) adopt(s *Store, l *limit, h uint64, from *table, state []uint64, now int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table(l)
	at := s.at(t, sh.tick(now))
	if !from.meter.Idle(state, at) && t.find(h) == nil {
		sh.carry(t, t.insert(sh, h, at), from, state, at)
	}
}

// adoptCell gives the cell of a hash what a snapshot holds of it.
func (sh *shard) adoptCell(s *Store, l *limit, h uint64, from *table, state []uint64, now int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table(l)
	at := s.at(t, sh.tick(now))
	if from.meter.Idle(state, at) {
		return
	}
	t.needCells(s)
	if cell := t.cellAt(s.cellOf(h)); !t.indirect || cell[0] == 0 {
		sh.carry(t, cell, from, state, at)
	}
}

// SaveFile writes a snapshot to a file, whole or not at all: it is written
// beside it, synced, and renamed. The file is readable by its owner alone,
// because it holds the store's secret.
func (s *Store) SaveFile(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err = s.Save(f); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// LoadFile is [Store.Load] from a file. A file that is not there matches
// fs.ErrNotExist.
func (s *Store) LoadFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.Load(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writer writes numbers and keeps their checksum and the first error.
type writer struct {
	w   *bufio.Writer
	sum hash.Hash32
	err error
	buf [8]byte
}

func (w *writer) bytes(b []byte) {
	w.sum.Write(b)
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

func (w *writer) uint32(n uint32) { w.bytes(binary.LittleEndian.AppendUint32(w.buf[:0], n)) }
func (w *writer) uint64(n uint64) { w.bytes(binary.LittleEndian.AppendUint64(w.buf[:0], n)) }

func (w *writer) text(s string) {
	w.uint32(uint32(len(s)))
	w.bytes([]byte(s))
}

// reader reads what writer wrote; after the first error it reads zeros.
type reader struct {
	r   *bufio.Reader
	sum hash.Hash32
	err error
	buf [8]byte

	version uint32
}

func (r *reader) bytes(b []byte) []byte {
	if r.err == nil {
		if _, r.err = io.ReadFull(r.r, b); r.err == nil {
			r.sum.Write(b)
			return b
		}
	}
	clear(b)
	return b
}

func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.bytes(r.buf[:4])) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.bytes(r.buf[:8])) }

func (r *reader) text() string {
	n := r.uint32()
	if n > mostText {
		r.fail("a text of %d bytes", n)
		return ""
	}
	return string(r.bytes(make([]byte, n)))
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) snapshot() *loaded {
	in := &loaded{saved: make(map[string]*savedLimit)}
	if magic := string(r.bytes(make([]byte, len(snapshotMagic)))); r.err == nil && magic != snapshotMagic {
		r.fail("not a snapshot: it begins with %q", magic)
	}
	if r.version = r.uint32(); r.version == 0 || r.version > snapshotVersion {
		r.fail("version %d: this program reads 1 to %d", r.version, snapshotVersion)
	}
	for i := range in.seed {
		in.seed[i] = r.uint64()
	}
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		name := r.text()
		if l := r.limit(); l != nil {
			if !strings.Contains(name, apart) { // of before limits were bound under names
				name += apart + l.meter.Limit().ID()
			}
			if r.version > 2 && in.saved[name] != nil {
				r.fail("limit %q twice", name)
			}
			l.name, in.saved[name] = name, l
			in.limits = append(in.limits, l)
			in.keys += len(l.keys.of)
		}
	}
	if r.version > 2 {
		in.open = r.open(len(in.limits))
	}
	want := r.sum.Sum32()
	if sum := r.uint32(); r.err == nil && sum != want {
		r.fail("the checksum is %08x, not %08x: torn or damaged", sum, want)
	}
	return in
}

// limit reads one limit and its keys, and checks that the states are sound.
func (r *reader) limit() *savedLimit {
	text := r.text()
	if r.err != nil {
		return nil
	}
	limit, err := stint.Parse(text)
	if err != nil {
		r.fail("%w", err)
		return nil
	}
	l := &savedLimit{}
	if l.meter, err = stint.NewMeter(limit); err != nil {
		r.fail("%w", err)
		return nil
	}
	r.states(&l.keys, l.meter, math.MaxUint64)
	if r.version > 1 {
		r.states(&l.cells, l.meter, 1<<cellBits)
	}
	return l
}

// states reads states by hashes up to one.
func (r *reader) states(into *savedStates, m *stint.Meter, most uint64) {
	for h := r.uint64(); h != 0; h = r.uint64() {
		n := r.uint32()
		if n > mostWords || h > most {
			r.fail("a state of %d words, of %#x", n, h)
			return
		}
		begin := len(into.words)
		for range n {
			if into.words = append(into.words, r.uint64()); r.err != nil {
				return
			}
		}
		if !m.Check(into.words[begin:]) {
			r.fail("a state that limit %q cannot have", m.Limit())
			return
		}
		into.of = append(into.of, savedKey{h, n})
	}
}
