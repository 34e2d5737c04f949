package proof_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/test/proof/model"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// The embedded store's clock never steps, but the wall time that its windows
// follow may, and so may the clock of any other store that uses the arithmetic.
// These tests give the bare arithmetic clocks that step back and forth.

// faulty is a clock that now and then jumps, by a little or by years.
type faulty struct {
	rng    *rand.Rand
	now    int64
	period int64
}

func newFaulty(l stint.Limit, seed uint64) *faulty {
	return &faulty{rand.New(rand.NewPCG(seed, 7)), 1_763_675_900e9, int64(l.Period())}
}

func (f *faulty) tick(unit int64) {
	switch f.rng.IntN(60) {
	case 0:
		f.now -= f.rng.Int64N(f.period)
	case 1:
		f.now += f.rng.Int64N(f.period)
	case 2:
		f.now -= f.rng.Int64N(10 * f.period)
	case 3:
		f.now += f.rng.Int64N(10 * f.period)
	case 4:
		f.now += f.rng.Int64N(3_000_000*f.period) - 1_500_000*f.period
	case 5:
		f.now = f.now/f.period*f.period - f.rng.Int64N(2) // around an edge
	case 6:
		f.now -= f.rng.Int64N(100)
	default:
		f.now += f.rng.Int64N(unit + 1)
	}
	f.now = min(max(f.now, 0), 1<<62)
}

func (b *bare) clone() bare { return bare{b.meter, slices.Clone(b.words)} }

// remaining looks at the state without touching it.
func (b *bare) remaining(now int64) int64 {
	c := b.clone()
	return c.meter.Answer(c.words, now, 0, true).Remaining
}

// TestStepBackAddsNothing takes under a clock that jumps. Whatever the state,
// no earlier moment may have more room than a later one; and over the time that
// went forward, however often it was gone through, nothing passes above the
// envelope: a step back adds nothing by itself.
func TestStepBackAddsNothing(t *testing.T) {
	for _, text := range everyKind {
		l := parse(t, text)
		if unit, _ := l.Calendar(); unit != "" {
			continue // a fixed window like the others
		}
		t.Run(text, func(t *testing.T) {
			for seed := range uint64(scaled(3, 10, 1000)) {
				stepBack(t, l, seed)
			}
		})
	}
}

func stepBack(t *testing.T, l stint.Limit, seed uint64) {
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	key, clock := newBare(m), newFaulty(l, seed)
	unit, period := int64(l.Period())/l.Count(), int64(l.Period())
	var events []oracle.Event
	forward, edges := int64(0), int64(0)
	for range 1000 {
		before := clock.now
		clock.tick(unit)
		if clock.now > before {
			forward += clock.now - before
			edges += clock.now/period - before/period
		}
		at := key.remaining(clock.now)
		if earlier := clock.now - clock.rng.Int64N(3*period); earlier >= 0 && key.remaining(earlier) > at {
			t.Fatalf("seed %d: %d remain at %d, but %d at %d", seed, at, clock.now, key.remaining(earlier), earlier)
		}
		cost := 1 + clock.rng.Int64N(3)
		d := key.take(clock.now, cost)
		e := oracle.Event{T: forward % (1 << 62), Cost: cost, Allowed: d.Allowed}
		if l.Algorithm() == meter.FixedWindow && !l.FromFirst() || l.Algorithm() == meter.TokenBucketInterval {
			e.T = edges * period
		}
		events = append(events, e)
	}
	if v := oracle.Check(unrolled(l), events, 0); len(v) > 0 {
		t.Fatalf("seed %d: %d violations over the time that went forward, first: %v", seed, len(v), v[0])
	}
}

// unrolled is what holds over the time that went forward. That time knows no
// edges, so the sliding counter is held to its rate alone, and the queue, whose
// delays lie on the clock, to its admissions.
func unrolled(l stint.Limit) model.Spec {
	s := spec(l)
	switch l.Algorithm() {
	case meter.LeakyQueue:
		return model.Spec{Kind: model.GCRA, Count: s.Count, Period: s.Period, Burst: s.Burst + 1}
	case meter.SlidingCounter:
		s.Kind, s.Burst = model.GCRA, s.Count
		if s.Relaxed {
			s.Burst++
		}
	}
	return s
}

// longestLock is how long a jump of the clock may keep a key that is exhausted,
// or in debt, from one unit: a drain and its greatest debt, or two windows and
// what the kind adds to one.
func longestLock(l stint.Limit) time.Duration {
	w, count, debt := l.Period(), l.Count(), cmp.Or(l.Debt(), l.Capacity())
	switch l.Algorithm() {
	case meter.GCRA, meter.LeakyQueue:
		return time.Duration(l.Capacity()+debt)*w/time.Duration(count) + 1
	case meter.TokenBucketInterval:
		return time.Duration((debt+count)/count+2) * w
	case meter.SlidingSubWindows:
		return 2*w + w/time.Duration(l.Parts()) + 1
	case meter.SlidingCounter:
		return 3 * w
	}
	if unit, _ := l.Calendar(); unit != "" {
		return 2*w + 2*time.Hour // a day may have 25 hours
	}
	return 2 * w
}

// TestJumpLocksNobodyOut exhausts a key, lets the clock jump anywhere, and asks
// again and again without taking anything. The key must get its unit within
// the time that a drain and its debt explain, and exactly when the answer right
// after the jump said.
func TestJumpLocksNobodyOut(t *testing.T) {
	for _, text := range everyKind {
		l := parse(t, text)
		if l.CountDenied() {
			continue // to ask is to stay out
		}
		t.Run(text, func(t *testing.T) {
			m, err := l.Meter()
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(11, 12))
			w := int64(l.Period())
			for range scaled(30, 200, 10_000) {
				now := 40_000*w + rng.Int64N(w)
				for _, jump := range []int64{-rng.Int64N(w), -rng.Int64N(5 * w), -rng.Int64N(40_000 * w), rng.Int64N(5 * w), rng.Int64N(40_000 * w)} {
					key := newBare(m)
					for key.take(now, 1).Allowed {
					}
					if rng.IntN(2) == 0 {
						m.Charge(key.words, now, l.Capacity()) // debt
					}
					lockedOut(t, &key, now, now+jump, longestLock(l))
				}
			}
		})
	}
}

// lockedOut polls a key from a moment on.
func lockedOut(t *testing.T, key *bare, before, now int64, longest time.Duration) {
	t.Helper()
	d := key.take(now, 1)
	if d.Allowed {
		return
	}
	wait, _ := d.RetryAfter.Duration()
	if wait > longest {
		t.Fatalf("from %d to %d: retry after %v, longer than %v", before, now, wait, longest)
	}
	for poll := int64(1); poll < 8; poll++ {
		if at := now + int64(wait)*poll/8; at < now+int64(wait) && key.take(at, 1).Allowed {
			t.Fatalf("from %d to %d: told to retry after %v, passes at %d already", before, now, wait, at)
		}
	}
	if d := key.take(now+int64(wait), 1); !d.Allowed {
		t.Fatalf("from %d to %d: told to retry after %v, and then after %v more", before, now, wait, d.RetryAfter)
	}
}

// TestStoreClockThatStepsBack gives the embedded store a clock that steps back, as
// no sane one does: it must go on as if time stood still, and no key may get more
// than it would over the time of the latest reading.
func TestStoreClockThatStepsBack(t *testing.T) {
	for _, text := range everyKind {
		l := parse(t, text)
		clock := newFaulty(l, 5)
		s := memstore.New(memstore.Options{Now: func() int64 { return clock.now }})
		limiter := made.Limiter(t, s, l.Name(), l)
		var events []oracle.Event
		latest := int64(math.MinInt64)
		for range scaled(500, 2000, 100_000) {
			clock.tick(int64(l.Period()) / l.Count())
			latest = max(latest, clock.now)
			cost := 1 + clock.rng.Int64N(3)
			d, err := limiter.Take(t.Context(), "k", cost)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, oracle.Event{T: latest, Cost: cost, Allowed: d.Allowed, Delay: int64(d.Delay)})
		}
		if v := oracle.Judge(spec(l), events, 0); len(v) > 0 {
			t.Errorf("%s: %d violations, first: %v", text, len(v), v[0])
		}
	}
}
