package memstore

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"math"
	"strings"

	"github.com/stint-dev/stint"
)

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

// snapshot reads a whole snapshot, and checks everything in it, so that the worst that
// a damaged file can do is to be refused.
func (r *reader) snapshot() *loaded {
	in := &loaded{}
	if magic := string(r.bytes(make([]byte, len(snapshotMagic)))); r.err == nil && magic != snapshotMagic {
		r.fail("not a snapshot: it begins with %q", magic)
	}
	if version := r.uint32(); version != snapshotVersion {
		r.fail("version %d: this program reads %d", version, snapshotVersion)
	}
	for i := range in.seed {
		in.seed[i] = r.uint64()
	}
	labels := make(map[string]bool)
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		a := r.account(labels)
		in.accounts = append(in.accounts, a)
		in.keys += len(a.keys.of)
	}
	in.open = r.open(in.accounts)
	want := r.sum.Sum32()
	if sum := r.uint32(); r.err == nil && sum != want {
		r.fail("the checksum is %08x, not %08x: torn or damaged", sum, want)
	}
	return in
}

// account reads an account. labels are the labels of all accounts before it.
func (r *reader) account(labels map[string]bool) *savedAccount {
	a := &savedAccount{name: r.text(), own: r.text(), limits: make(map[uint32]*savedLimit)}
	r.states(&a.keys, math.MaxUint64)
	r.states(&a.cells, 1<<cellBits)
	id := ""
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		number, l := r.uint32(), r.limit(a)
		if r.err != nil {
			return a
		}
		of := a.id(l)
		switch {
		case number == 0 || a.limits[number] != nil:
			r.fail("limit %q of number %d", l.given, number)
		case id == "" && labels[a.name+apart+of]:
			r.fail("limit %q under %q twice", l.given, a.name)
		case id != "" && id != of:
			r.fail("limit %q beside %s", l.given, id)
		}
		id = of
		labels[a.name+apart+id], a.limits[number] = true, l
	}
	r.check(a, &a.keys)
	r.check(a, &a.cells)
	return a
}

// id returns what identifies the account of a limit; all bans of an account have the same.
func (a *savedAccount) id(l *savedLimit) string {
	if strings.HasPrefix(a.own, apart) {
		return a.own
	}
	return l.given.ID()
}

// limit reads a limit of an account.
func (r *reader) limit(a *savedAccount) *savedLimit {
	given, err := stint.Parse(r.text())
	if r.err != nil {
		return nil
	}
	if err == nil {
		switch bans := strings.HasPrefix(a.own, apart); {
		case bans && given != stint.Every(given.Period()):
			r.fail("a ban of %q", given)
		case !bans && a.own != "":
			given = given.WithName(a.own)
		}
		err = stint.CheckBind(a.name, []stint.Limit{given})
	}
	l := &savedLimit{given: given}
	if err == nil {
		l.meter, err = given.Meter()
	}
	if err != nil {
		r.fail("%w", err)
	}
	return l
}

// states reads the states of an account; most is the greatest hash that may come.
func (r *reader) states(into *savedStates, most uint64) {
	for h := r.uint64(); h != 0; h = r.uint64() {
		k := savedKey{h, r.uint32(), r.uint32()}
		if k.words > mostWords || h > most {
			r.fail("a state of %d words, of %#x", k.words, h)
			return
		}
		for range k.words {
			if into.words = append(into.words, r.uint64()); r.err != nil {
				return
			}
		}
		into.of = append(into.of, k)
	}
}

// check checks states, once the limits are read that they drain by.
func (r *reader) check(a *savedAccount, states *savedStates) {
	for k, state := range states.all() {
		l := a.limits[k.number]
		if k.number == 0 {
			for _, any := range a.limits {
				if l = any; l.meter.Drains() {
					l = nil
				}
			}
		}
		if r.err == nil && (l == nil || !l.meter.Check(state)) {
			r.fail("a state that no limit under %q can have", a.name)
		}
	}
}
