package meter_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// FuzzMeter lets bytes choose a limit, and then charges of all sorts at times
// that go forth and back, and checks what docs/SEMANTICS.md says of every algorithm: n
// takes of 1 pass if one take of n does, waits are no longer than needed, remaining is
// true, a denial changes nothing, and a reset leaves an unseen key. The seeds are under
// testdata/fuzz.
func FuzzMeter(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		in := input(data)
		m, err := in.limit().Meter()
		if err != nil {
			t.Skip(err)
		}
		k := keyOf(m)
		for n := 0; len(in) > 0 && n < 48; n++ {
			op, now, cost := in.byte(), in.number(), in.number()
			switch op % 6 {
			case 0, 1, 2:
				checkTake(t, k, now, cost)
			case 3:
				k.reserve(now, cost)
			case 4:
				k.giveBack(now, cost)
			case 5:
				m.Refund(k.s, now, cost)
			}
			if checkState(t, k, now, cost); t.Failed() {
				t.Fatalf("%v: step %d, op %d of %d at %d: %v", m.Spec(), n, op%6, cost, now, k.s)
			}
		}
	})
}

// input reads choices from bytes; at the end it reads zeros.
type input []byte

func (in *input) byte() byte {
	if len(*in) == 0 {
		return 0
	}
	b := (*in)[0]
	*in = (*in)[1:]
	return b
}

// number reads a number of any size, small ones and round ones in few bytes.
func (in *input) number() int64 {
	units := []int64{1, 1000, int64(time.Millisecond), int64(time.Second), int64(time.Minute), int64(24 * time.Hour)}
	switch b := in.byte(); b % 8 {
	case 0, 1, 2, 3, 4, 5:
		return units[b%8] * int64(in.byte())
	case 6:
		return math.MaxInt64 - int64(in.byte())
	default:
		var word [8]byte
		*in = (*in)[copy(word[:], *in):]
		return int64(binary.LittleEndian.Uint64(word[:]))
	}
}

func (in *input) limit() stint.Limit {
	b := in.byte()
	algorithm, options := meter.Algorithm(b%7), in.byte()
	if b>>4 == 15 {
		l := stint.PerDayIn(in.number(), []string{"UTC", "Europe/Paris", "America/St_Johns", "Pacific/Apia"}[options&3])
		if options&4 != 0 {
			l = l.WithCountDenied()
		}
		return l
	}
	l := stint.New(in.number(), time.Duration(in.number())).WithAlgorithm(algorithm)
	if algorithm < meter.FixedWindow && options&1 != 0 {
		l = l.WithBurst(in.number())
	}
	if algorithm < meter.FixedWindow && options&8 != 0 {
		l = l.WithDebt(in.number())
	}
	if algorithm == meter.SlidingSubWindows && options&1 != 0 {
		l = l.WithParts(int64(in.byte()))
	}
	if algorithm == meter.SlidingCounter && options&2 != 0 {
		l = l.WithRelaxed()
	}
	if algorithm >= meter.FixedWindow && options&4 != 0 {
		l = l.WithCountDenied()
	}
	return l
}

// checkTake takes a cost, and compares the answer with as many takes of 1, with a peek before,
// and with Allow.
func checkTake(t *testing.T, k *key, now, cost int64) {
	k.room(now, cost)
	k.admits(now, 1) // forgets what no longer counts
	peek := k.admits(now, cost)
	before, short := k.clone(), k.clone()
	d := k.take(now, cost)
	ranges(t, k.Meter, d, now, cost)
	if short.room(now, cost); k.open.Len() == 0 && (short.Allow(short.s, now, cost) != d.Allowed || !slices.Equal(short.s, k.s)) {
		t.Errorf("Allow and Take differ: %v and %v", short.s, k.s)
	}
	if d.Allowed != peek {
		t.Errorf("it passes %v, but peeking said %v", d.Allowed, peek)
	}
	if (!d.Allowed && !k.CountsDenied() || cost <= 0) && !slices.Equal(before.s, k.s) {
		t.Errorf("a denial or a cost of 0 changes %v to %v", before.s, k.s)
	}
	if cost < 1 || cost > 40 || !d.Allowed && k.CountsDenied() {
		return
	}
	passed := int64(0)
	for range cost {
		if before.take(now, 1).Allowed {
			passed++
		}
	}
	if (passed == cost) != d.Allowed {
		t.Errorf("of %d takes of 1, %d pass; one of %d: %v", cost, passed, cost, d.Allowed)
	}
	left, reset := before.level(now)
	if d.Allowed && (left != d.Remaining || reset != d.ResetAfter) {
		t.Errorf("after %d takes of 1: %d left, reset %v; after one %+v", cost, left, reset, d)
	}
}

// checkState compares the answers about a state with what the state then does.
func checkState(t *testing.T, k *key, now, cost int64) {
	m, at := k.Meter, max(now, 0)
	if !m.Check(k.s) {
		t.Errorf("unsound")
		return
	}
	later := func(wait int64) (*key, int64, bool) {
		return k.clone(), at + wait, wait < math.MaxInt64-at
	}
	d := k.ask(now, cost)
	ranges(t, m, d, now, cost)
	if !k.admits(now, d.Remaining) || d.Remaining < math.MaxInt64 && k.admits(now, d.Remaining+1) {
		t.Errorf("%d remain, which is not so", d.Remaining)
	}
	if wait := m.Wait(k.s, now, cost); wait != d.RetryAfter {
		t.Errorf("wait %v and retry %v", wait, d.RetryAfter)
	}
	if d.RetryAfter > 0 {
		if then, at, ok := later(int64(d.RetryAfter)); ok && !then.admits(at, cost) {
			t.Errorf("does not pass after %v", d.RetryAfter)
		}
		if then, at, ok := later(int64(d.RetryAfter) - 1); ok && then.admits(at, cost) {
			t.Errorf("passes 1 ns before %v", d.RetryAfter)
		}
	}
	if then, at, ok := later(int64(d.ResetAfter)); ok && !then.Idle(then.s, at) {
		t.Errorf("not reset after %v", d.ResetAfter)
	}
	if d.ResetAfter > 0 {
		if then, at, ok := later(int64(d.ResetAfter) - 1); ok && then.Idle(then.s, at) {
			t.Errorf("reset before %v", d.ResetAfter)
		}
	}
	if k.Idle(k.s, now) {
		fresh := keyOf(m)
		if a := fresh.ask(now, cost); a != d {
			t.Errorf("idle, but %+v; unseen %+v", d, a)
		}
	}
}
