package redisstore

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A limit is all limits of one ID under one name, whatever their count and burst. A key has
// one state under it.
type limit struct {
	name    string                   // the name that it is bound under, and the ID
	segment string                   // name as it stands in keys
	last    atomic.Pointer[compiled] // the one that was bound last
}

// stateName returns the name of a limit's states: the name that it is bound under, a slash,
// and its ID. A slash in the name itself is escaped.
func stateName(name string, l stint.Limit) string {
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(name) + "/" + l.ID()
}

// A compiled limit is a limit in the form that the script takes.
type compiled struct {
	limit    stint.Limit
	text     string // the text of the limit
	capacity int64
	args     []string    // the head of its states, then three numbers, for sliding_buckets more
	calendar *calendar   // has the bounds that follow args; nil for other limits
	fast     *fastBucket // nil if it is no bucket
	window   *fastWindow // nil if it is no window or counter, or needs the general path
	entries  int64       // how many entries a state may hold, of a log or sliding_buckets
}

// isFast reports whether the script's fast path can decide the limit.
func (f *compiled) isFast() bool { return f.fast != nil && !f.fast.long || f.window != nil }

// most bounds the limits that the script takes, since it computes in doubles, which are exact
// up to 2^53. It bounds counts, bursts, periods in µs, and how long a full bucket and the
// greatest debt take to drain, in ticks of which one unit takes a whole number. So the sum
// of a time, a drain, a debt and a charge never exceeds 2^53. Products that may exceed it are
// computed in two halves (lua/numbers.lua).
const most = 1 << 50

// compile returns a limit in the form that the script takes, or an error if it cannot.
func compile(l stint.Limit, maxLog int64) (*compiled, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	f := &compiled{limit: l, text: l.String(), capacity: l.Capacity()}
	unfit := "this algorithm is not known here"
	if write, known := forms[l.Algorithm()]; known {
		if unfit = f.unfitPeriod(); unfit == "" {
			unfit = write(f, maxLog)
		}
	}
	if unfit != "" {
		return nil, fmt.Errorf("redisstore: limit %q: %s", l.String(), unfit)
	}
	return f, nil
}

// forms has, for each algorithm, the function that writes a limit for the script, which knows
// the algorithm by a letter (lua/layers.lua). It returns why the script cannot take a limit.
var forms = map[meter.Algorithm]func(f *compiled, maxLog int64) (unfit string){
	meter.GCRA:                func(f *compiled, _ int64) string { return f.bucket("g") },
	meter.LeakyQueue:          func(f *compiled, _ int64) string { return f.bucket("q") },
	meter.TokenBucketInterval: (*compiled).interval,
	meter.FixedWindow:         (*compiled).counting,
	meter.SlidingCounter:      (*compiled).weighing,
	meter.SlidingSubWindows:   (*compiled).parts,
	meter.SlidingLog:          (*compiled).log,
}

// unfitPeriod returns why the script cannot take a limit that counts in whole periods.
func (f *compiled) unfitPeriod() string {
	l := f.limit
	unit, _ := l.Calendar()
	switch {
	case l.Algorithm().Evenly():
		return ""
	case max(l.Count(), f.capacity, l.Debt()) > most:
		return fmt.Sprintf("Redis counts up to %d units, and this has more", int64(most))
	case unit == "" && l.Period()%time.Microsecond != 0:
		return fmt.Sprintf("the clock of Redis goes by whole microseconds, and a period of %v does not: %v would do", l.Period(), l.Period().Round(time.Microsecond))
	case unit == "" && l.Period()/time.Microsecond > most:
		return fmt.Sprintf("Redis holds periods up to %v, and this is longer", longestPeriod)
	}
	return ""
}

// period returns the period in µs.
func (f *compiled) period() string { return number(int64(f.limit.Period() / time.Microsecond)) }

// dated returns the arguments of a limit whose states depend on its period alone. The head
// of the states is the letter, the period and more.
func (f *compiled) dated(letter, period, more string) []string {
	return []string{"=" + letter + period + ":" + more, period, number(f.limit.Count()), flags(f.limit)}
}

func (f *compiled) interval(int64) (unfit string) {
	l := f.limit
	if full := new(big.Int).Mul(big.NewInt(max(f.capacity, l.Debt())/l.Count()+1), big.NewInt(int64(l.Period()/time.Microsecond))); full.Cmp(big.NewInt(most)) > 0 {
		return fmt.Sprintf("an empty bucket is full again after more than the %v that Redis can hold: a smaller burst or debt would do", longestPeriod)
	}
	period, count := f.period(), number(l.Count())
	f.args = []string{"=i" + period + ":" + count + ":" + f.bounds() + ":", period, count, number(f.capacity)}
	return ""
}

func (f *compiled) counting(int64) (unfit string) {
	l := f.limit
	if unit, zone := l.Calendar(); unit != "" {
		f.args = f.dated("c", strings.Replace(unit, " from ", "-", 1)+" "+zone, "")
		f.calendar = &calendar{back: int64(l.Period() + l.Period()/2)}
		f.calendar.meter, _ = l.Meter() // compile has validated the limit
		return ""
	}
	f.args = f.dated("w", f.period(), "")
	f.fastWindow(false)
	return ""
}

func (f *compiled) weighing(int64) (unfit string) {
	f.args = f.dated("s", f.period(), "")
	f.fastWindow(true)
	return ""
}

func (f *compiled) parts(int64) (unfit string) {
	cuts := min(f.limit.Parts(), int64(f.limit.Period()/time.Microsecond))
	f.args, f.entries = append(f.dated("b", f.period(), number(cuts)+":"), number(cuts)), cuts+1
	return ""
}

func (f *compiled) log(maxLog int64) (unfit string) {
	if f.limit.Count() > maxLog {
		return fmt.Sprintf("a log of %d is more than the %d that this store keeps (Options.MaxLog): sliding_buckets needs far less", f.limit.Count(), maxLog)
	}
	f.args, f.entries = f.dated("l", f.period(), ""), f.limit.Count()
	return ""
}

// fastWindow sets f.window if the fast path can decide the limit.
func (f *compiled) fastWindow(counter bool) {
	w := &fastWindow{f.limit.Count(), int64(f.limit.Period() / time.Microsecond), counter}
	if flags(f.limit) == "" && (!counter || w.count < math.MaxInt64/2/w.period) {
		f.window = w
	}
}

// longestPeriod is most µs, rounded down to years.
const longestPeriod = 35 * 365 * 24 * time.Hour

// bucket writes a bucket or queue: T in µs is the fraction step/div in lowest terms. It
// returns why the script cannot take it.
func (f *compiled) bucket(letter string) (unfit string) {
	step := big.NewInt(int64(f.limit.Period()))
	div := new(big.Int).Mul(big.NewInt(f.limit.Count()), big.NewInt(1000))
	gcd := new(big.Int).GCD(nil, nil, step, div)
	step.Quo(step, gcd)
	div.Quo(div, gcd)
	full := new(big.Int).Mul(step, big.NewInt(f.capacity))
	debt := f.limit.Debt()
	if new(big.Int).Mul(step, big.NewInt(debt)).Cmp(big.NewInt(most)) > 0 {
		return fmt.Sprintf("Redis can hold a debt of %v units of this limit, not one of %d", new(big.Int).Quo(big.NewInt(most), step), debt)
	}
	if !full.IsInt64() || full.Int64() > most || !div.IsInt64() || div.Int64() > 1<<30 {
		return fmt.Sprintf("one unit is %v/%v of a microsecond, and Redis can hold a burst of %v such units and a divisor of at most %d, not one of %d: a rounder count, such as 1000000 for 1048576, or a smaller burst will do",
			step, div, new(big.Int).Quo(big.NewInt(most), step), int64(1<<30), f.capacity)
	}
	q := &fastBucket{step.Int64(), full.Int64(), div.Int64(), f.limit.Algorithm().Queues(), debt > 0 && debt < f.capacity || f.limit.Ban() > 0}
	head := "=" + letter + number(q.step) + ":" + number(q.div) + ":" + f.bounds() + ":"
	f.fast, f.args = q, []string{head, number(q.step), number(q.full), number(q.div)}
	return ""
}

// bounds returns the capacity of a bucket or queue, and its greatest debt if that is set.
func (f *compiled) bounds() string {
	if debt := f.limit.Debt(); debt != 0 {
		return number(f.capacity) + "d" + number(debt)
	}
	return number(f.capacity)
}

// flags returns the flags of a limit: d for count_denied, r for relaxed, f for from first, b
// for a ban, and m if the parts of sliding_buckets count up to 2^32 − 1, as in package meter.
// The fast paths take limits without flags.
func flags(l stint.Limit) string {
	s := ""
	if l.CountDenied() {
		s += "d"
	}
	if l.Relaxed() {
		s += "r"
	}
	if l.FromFirst() {
		s += "f"
	}
	if l.Algorithm().Takes(meter.Parts) && l.Count() < 1<<31 {
		s += "m"
	}
	if l.Ban() > 0 {
		s += "b"
	}
	return s
}

// A calendar gives the script the bounds of calendar windows around a time, which only
// package meter knows. It may be used from many goroutines at once.
type calendar struct {
	meter *meter.Meter
	back  int64 // the length of a window and a half, in ns
	last  atomic.Pointer[bounds]
}

// bounds are consecutive windows, as arguments. They serve for the times that have a window
// before them and two after.
type bounds struct {
	from, until int64 // ns
	args        []string
}

// at returns the bounds around now: their number, then where each window begins and the last
// one ends, in µs.
func (c *calendar) at(now int64) []string {
	now = max(now, 0)
	b := c.last.Load()
	if b == nil || now < b.from || now >= b.until {
		b = c.around(now)
		c.last.Store(b)
	}
	return b.args
}

func (c *calendar) around(now int64) *bounds {
	start := max(now-c.back, 0)
	end := c.windowEnd(start)
	args := []string{micros(start), micros(end)}
	b := &bounds{from: now, until: now + 1}
	for range 8 { // enough for the windows within back, and two more
		if end > now && b.until == now+1 {
			b.until = end
		}
		end = c.windowEnd(end)
		args = append(args, micros(end))
	}
	b.args = append([]string{number(int64(len(args)))}, args...)
	return b
}

// windowEnd returns the end of the window around a time, at most the end of int64.
func (c *calendar) windowEnd(t int64) int64 {
	state := make([]uint64, c.meter.Words())
	c.meter.Charge(state, t, 1)
	return t + int64(c.meter.Answer(state, t, 0, true).ResetAfter)
}

// micros converts ns to µs, rounded up.
func micros(ns int64) string {
	us := ns / 1000
	if ns%1000 != 0 {
		us++
	}
	return number(us)
}
