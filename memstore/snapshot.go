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
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A snapshot is, in little-endian order:
//
//	magic    8 bytes, "stintsnp"
//	version  uint32, 5
//	seed     4 × uint64
//	names    uint32, and for each:
//	  name     length uint32, bytes
//	  forms    uint32, and for each: limits uint32, and for each of these its ID
//	           and its text, as the name
//	  blocks   uint32 1 and a block, for each shard, and 0 at the end:
//	    keys     of each limit of each form, until a hash of 0: hash uint64,
//	             words uint32, words × uint64
//	    met      which forms keys have met, of those that met several, until a
//	             hash of 0: hash uint64, forms uint32, forms × uint32
//	    retained what forms had in use that keys have no more, until a hash of 0:
//	             hash uint64, limits uint32, and for each: its ID as the name,
//	             steps uint32, and for each: units int64, until int64
//	  cells    the overflow cells of each limit, as its keys: for the hash, 1
//	           more than the top bits of the hashes that share the cell
//	charges  of open reservations: uint32, and for each state that has some:
//	  limit, on   uint32 twice: which of the limits above, counted through, and 1
//	              for a key, 2 for a cell
//	  hash        uint64, as above
//	  words       uint32, words × uint64: meter.Reservations
//	open     the reservations: uint32, and for each:
//	  id              length uint32, bytes
//	  cost, expires   int64 twice
//	  parts           uint32, and for each: limit and on as above, hash uint64,
//	                  weight int64, mark 2 × uint64
//	sum      uint32, CRC-32C of all before it
//
// Read too are version 4, which has no retained, and versions 3, 2 and 1. In place of
// the names these have
//
//	limits   uint32, and for each: name and ID with a 0 byte in between, text,
//	         keys, cells
//
// where version 2 has no reservations, and version 1 no cells either.
const (
	snapshotMagic   = "stintsnp"
	snapshotVersion = 5
	mostText        = 1 << 10
	mostWords       = 1 << 22
)

// ErrSnapshot is for a snapshot that is torn, damaged or of another version.
var ErrSnapshot = errors.New("memstore: unusable snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A savedName is what a snapshot holds of a name.
type savedName struct {
	text     string
	forms    [][]*savedLimit
	met      []savedMet
	retained []savedRetained
}

// A savedRetained is what is retained of a key.
type savedRetained struct {
	hash uint64
	all  []retained
}

// A savedMet is which forms a key has met, that which decided last at the end.
type savedMet struct {
	hash  uint64
	forms []uint32
}

// A savedLimit is what a snapshot holds of a limit.
type savedLimit struct {
	name  string // what it is bound under, and its ID
	given stint.Limit
	meter *meter.Meter
	keys  savedStates
	cells savedStates
	limit *limit // once it is known to the store
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
// keys, only their hashes, and the secret that they are hashed with. After
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
	open := newOpenCopy()
	names := s.known()
	out.uint32(uint32(len(names)))
	for _, n := range names {
		n.save(s, out, open)
	}
	open.copyOpen(s)
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

// A copiedName is a name with the forms that it had when Save began.
type copiedName struct {
	*name
	forms []*form
}

// known returns the names, sorted.
func (s *Store) known() (all []copiedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseSome(len(s.list))
	for _, text := range slices.Sorted(maps.Keys(s.names)) {
		n := s.names[text]
		all = append(all, copiedName{n, slices.Clone(n.forms)})
	}
	return all
}

// save writes a name. What a shard has of it is copied at one moment.
func (n *copiedName) save(s *Store, out *writer, open *openCopy) {
	out.text(n.text)
	out.uint32(uint32(len(n.forms)))
	var limits []*limit
	for _, f := range n.forms {
		out.uint32(uint32(len(f.limits)))
		for _, l := range f.limits {
			out.text(l.id)
			out.text(l.given.String())
			open.limits[l] = &copiedLimit{index: uint32(len(open.limits))}
			limits = append(limits, l)
		}
	}
	cells := make([]savedStates, len(limits))
	for i := range s.shards {
		keys, met, kept := n.copyShard(s, &s.shards[i], limits, cells, open)
		if keys == nil {
			continue
		}
		out.uint32(1)
		for j := range keys {
			out.states(&keys[j])
			out.uint64(0)
		}
		for _, m := range met {
			out.uint64(m.hash)
			out.uint32(uint32(len(m.forms)))
			for _, f := range m.forms {
				out.uint32(f)
			}
		}
		out.uint64(0)
		for _, of := range kept {
			out.uint64(of.hash)
			out.uint32(uint32(len(of.all)))
			for _, one := range of.all {
				out.text(one.id)
				out.uint32(uint32(len(one.steps)))
				for _, s := range one.steps {
					out.uint64(uint64(s.units))
					out.uint64(uint64(s.until))
				}
			}
		}
		out.uint64(0)
	}
	out.uint32(0)
	for i := range cells {
		out.states(&cells[i])
		out.uint64(0)
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

// copyShard returns the keys of limits in one shard, nil if there are none, and
// which forms they have met and what is retained of them, and adds the cells and the
// open charges.
func (n *copiedName) copyShard(s *Store, sh *shard, limits []*limit, cells []savedStates, open *openCopy) (keys []savedStates, met []savedMet, kept []savedRetained) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.tick(s.clock.now())
	for i, l := range limits {
		open.limits[l].upTo[sh.index] = sh.reserved
		t := l.tables[sh.index]
		if t == nil {
			continue
		}
		if keys == nil {
			keys = make([]savedStates, len(limits))
		}
		open.charged(s, sh, t, open.limits[l])
		t.copyStates(s, sh, now, &keys[i], &cells[i])
	}
	k := sh.family(n.name)
	if keys == nil || k == nil {
		return keys, nil, nil
	}
	k.endRetained(now)
	if len(n.forms) > 1 { // of those that are written: others may have come since Save began
		for h, all := range k.retained {
			kept = append(kept, savedRetained{h, copyRetained(all)})
		}
	}
	for h := range k.keys {
		m := savedMet{hash: h}
		for _, f := range k.met(h) {
			if i := slices.Index(n.forms, f); i >= 0 {
				m.forms = append(m.forms, uint32(i))
			}
		}
		if len(m.forms) > 1 {
			met = append(met, m)
		}
	}
	return keys, met, kept
}

// copyStates copies the states that count.
func (t *table) copyStates(s *Store, sh *shard, now int64, keys, cells *savedStates) {
	at := s.at(t, now)
	for j := range t.segments {
		for h, slot := range t.slots(t.segments[j]) {
			if !t.idle(sh, slot, at) {
				keys.add(h, t.state(sh, slot))
			}
		}
	}
	if t.cells == nil {
		return
	}
	for i := range s.cells {
		if cell := t.cellAt(i); (!t.indirect() || cell[0] != 0) && !t.idle(sh, cell, at) {
			cells.add(uint64(sh.index*s.cells+i+1), t.state(sh, cell))
		}
	}
}

// Load reads a snapshot into a store that has bound no limits yet. It brings the
// limits along with what their keys have used: one that is bound with other
// parameters is another form of it. Reservations that have
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
	case len(s.names) > 0:
		return errors.New("memstore: Load comes before limits are bound")
	}
	s.seed = in.seed
	for _, n := range in.names {
		s.restore(n)
	}
	s.reopen(in)
	return nil
}

// restore makes a name of a snapshot known, with its keys. The store's lock is
// held.
func (s *Store) restore(n *savedName) {
	now := s.clock.now()
	var forms []*form
	for _, limits := range n.forms {
		given, meters := make([]stint.Limit, len(limits)), make([]*meter.Meter, len(limits))
		for i, l := range limits {
			given[i], meters[i] = l.given, l.meter
		}
		f := s.form(n.text, given, meters)
		f.stays = now + linger // until who was before has bound it again
		forms = append(forms, f)
		for i, l := range limits {
			l.limit = f.limits[i]
			for h, state := range l.keys.all() {
				s.shards[s.shard(h)].restore(s, l.limit, h, state, now)
			}
			for cell, state := range l.cells.all() {
				h := (cell - 1) << (64 - cellBits) // one of those that share it
				s.shards[s.shard(h)].restoreCell(s, l.limit, h, state, now)
			}
		}
	}
	for _, m := range n.met {
		var met []*form
		for _, i := range m.forms {
			met = append(met, forms[i])
		}
		sh := &s.shards[s.shard(m.hash)]
		sh.mu.Lock()
		sh.family(met[0].name).put(m.hash, met)
		sh.mu.Unlock()
	}
	for _, of := range n.retained {
		sh := &s.shards[s.shard(of.hash)]
		sh.mu.Lock()
		if k := sh.family(forms[0].name); k.retained == nil {
			k.retained = map[uint64][]retained{of.hash: of.all}
		} else {
			k.retained[of.hash] = of.all
		}
		sh.mu.Unlock()
	}
}

// restore gives a key of a limit what a snapshot holds of it.
func (sh *shard) restore(s *Store, l *limit, h uint64, state []uint64, now int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table(l)
	at := s.at(t, sh.tick(now))
	if t.meter.Idle(state, at) || t.find(h) != nil {
		return
	}
	sh.write(t, t.insert(sh, h, at), state)
	if k := sh.family(l.form.name); k != nil && k.all && k.met(h) == nil {
		k.put(h, []*form{l.form})
	}
}

// restoreCell gives the cell of a hash what a snapshot holds of it.
func (sh *shard) restoreCell(s *Store, l *limit, h uint64, state []uint64, now int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table(l)
	at := s.at(t, sh.tick(now))
	if t.meter.Idle(state, at) {
		return
	}
	t.needCells(s)
	if cell := t.cellAt(s.cellOf(h)); !t.indirect() || cell[0] == 0 {
		sh.write(t, cell, state)
	}
}

// write gives an empty slot a state.
func (sh *shard) write(t *table, slot, state []uint64) {
	if t.indirect() {
		slot[0], _ = sh.slab.alloc(t.block(max(len(state), t.meter.Words())))
	}
	t.meter.Move(t.state(sh, slot), state)
}

// SaveFile writes a snapshot to a file, whole or not at all: it is written
// beside it, synced, and renamed. The file is readable by its owner alone,
// because it holds the store's secret. A pipe, a device or a directory there is
// an error. What saves that were killed over an hour ago have left beside it
// is removed.
func (s *Store) SaveFile(path string) (err error) {
	if err := regular(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+saving+"*")
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
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	sweep(path)
	return nil
}

const (
	// saving stands in the name of a file until it is whole, before digits.
	saving = ".saving-"
	// abandoned is how old such a file is when its save must have been killed:
	// others may be saving too.
	abandoned = time.Hour
)

// sweep removes what saves have left that were killed long before the file was
// saved, by the clock of its disk. What it cannot remove
// stays for the next one.
func sweep(path string) {
	whole, err := os.Stat(path)
	if err != nil {
		return
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, file := range files {
		digits, ours := strings.CutPrefix(file.Name(), filepath.Base(path)+saving)
		if !ours || digits == "" || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		if info, err := file.Info(); err == nil && info.Mode().IsRegular() && whole.ModTime().Sub(info.ModTime()) > abandoned {
			_ = os.Remove(filepath.Join(filepath.Dir(path), file.Name()))
		}
	}
}

// regular reports why a path is no regular file: to open a pipe would wait for
// its other end, and a device may never end.
func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("memstore: %s: not a regular file", path)
	}
	return err
}

// LoadFile is [Store.Load] from a file. A file that is not there matches
// fs.ErrNotExist; what is no regular file is not opened.
func (s *Store) LoadFile(path string) error {
	if err := regular(path); err != nil {
		return err
	}
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
	in := &loaded{}
	if magic := string(r.bytes(make([]byte, len(snapshotMagic)))); r.err == nil && magic != snapshotMagic {
		r.fail("not a snapshot: it begins with %q", magic)
	}
	if r.version = r.uint32(); r.version == 0 || r.version > snapshotVersion {
		r.fail("version %d: this program reads 1 to %d", r.version, snapshotVersion)
	}
	for i := range in.seed {
		in.seed[i] = r.uint64()
	}
	if r.version < 4 {
		r.limits(in)
	} else {
		for n := r.uint32(); n > 0 && r.err == nil; n-- {
			in.names = append(in.names, r.name(in))
		}
	}
	if r.version > 2 {
		in.open = r.open(len(in.limits))
	}
	want := r.sum.Sum32()
	if sum := r.uint32(); r.err == nil && sum != want {
		r.fail("the checksum is %08x, not %08x: torn or damaged", sum, want)
	}
	for _, l := range in.limits {
		in.keys += len(l.keys.of)
	}
	return in
}

// name reads a name with its forms and keys.
func (r *reader) name(in *loaded) *savedName {
	n := &savedName{text: r.text()}
	if slices.ContainsFunc(in.names, func(o *savedName) bool { return o.text == n.text }) {
		r.fail("name %q twice", n.text)
	}
	var all []*savedLimit
	for forms := r.uint32(); forms > 0 && r.err == nil; forms-- {
		var form []*savedLimit
		var limits []stint.Limit
		for count := r.uint32(); count > 0 && r.err == nil; count-- {
			id := r.text()
			if l := r.meter(n.text + apart + id); l != nil {
				form, limits = append(form, l), append(limits, l.given)
			}
		}
		if err := stint.CheckBind(n.text, limits); err != nil {
			r.fail("%w", err)
		}
		n.forms, all = append(n.forms, form), append(all, form...)
	}
	in.limits = append(in.limits, all...)
	for r.err == nil && r.uint32() == 1 {
		for _, l := range all {
			r.states(l, &l.keys, math.MaxUint64)
		}
		r.met(n)
		if r.version > 4 {
			r.retained(n)
		}
	}
	for _, l := range all {
		r.states(l, &l.cells, 1<<cellBits)
	}
	return n
}

// met reads which forms keys have met.
func (r *reader) met(n *savedName) {
	for h := r.uint64(); h != 0; h = r.uint64() {
		m := savedMet{hash: h}
		count := r.uint32()
		if count < 2 || int(count) > len(n.forms) {
			r.fail("a key that met %d of %d forms", count, len(n.forms))
			return
		}
		for range count {
			f := r.uint32()
			if int64(f) >= int64(len(n.forms)) || slices.Contains(m.forms, f) {
				r.fail("a key that met form %d of %d", f, len(n.forms))
				return
			}
			m.forms = append(m.forms, f)
		}
		n.met = append(n.met, m)
	}
}

// retained reads what is retained of keys.
func (r *reader) retained(n *savedName) {
	for h := r.uint64(); h != 0; h = r.uint64() {
		of := savedRetained{hash: h}
		if len(n.forms) < 2 {
			r.fail("a key that has lost a form of one")
			return
		}
		for count := r.uint32(); count > 0 && r.err == nil; count-- {
			one := retained{id: r.text()}
			for steps := r.uint32(); steps > 0 && r.err == nil; steps-- {
				s := step{int64(r.uint64()), int64(r.uint64())}
				if s.units < 0 || len(one.steps) == mostSteps {
					r.fail("%d units that are retained", s.units)
				}
				one.steps = append(one.steps, s)
			}
			of.all = append(of.all, one)
		}
		n.retained = append(n.retained, of)
	}
}

// limits reads what versions before 4 have in place of names: limits, each with
// the name that it was bound under. Those of one name are taken for a form.
func (r *reader) limits(in *loaded) {
	names, seen := make(map[string]*savedName), make(map[string]bool)
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		text := r.text()
		l := r.meter(text)
		if l == nil {
			return
		}
		if seen[l.name] {
			r.fail("limit %q twice", l.name)
		}
		seen[l.name] = true
		r.states(l, &l.keys, math.MaxUint64)
		if r.version > 1 {
			r.states(l, &l.cells, 1<<cellBits)
		}
		in.limits = append(in.limits, l)
		under, _, _ := strings.Cut(l.name, apart)
		if names[under] == nil {
			names[under] = &savedName{text: under, forms: make([][]*savedLimit, 1)}
			in.names = append(in.names, names[under])
		}
		names[under].forms[0] = append(names[under].forms[0], l)
	}
}

// meter reads a limit that is known by a name and an ID.
func (r *reader) meter(name string) *savedLimit {
	text := r.text()
	if r.err != nil {
		return nil
	}
	limit, err := stint.Parse(text)
	l := &savedLimit{name: name, given: limit}
	if err == nil {
		l.meter, err = limit.Meter()
	}
	if err == nil {
		if !strings.Contains(name, apart) { // of before limits were bound under names
			l.name += apart + limit.ID()
		}
		err = l.named()
	}
	if err != nil {
		r.fail("%w", err)
		return nil
	}
	return l
}

// states reads states of a limit, by hashes up to one.
func (r *reader) states(l *savedLimit, into *savedStates, most uint64) {
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
		if !l.meter.Check(into.words[begin:]) {
			r.fail("a state that limit %q cannot have", l.given)
			return
		}
		into.of = append(into.of, savedKey{h, n})
	}
}
