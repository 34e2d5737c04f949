package redisstore

import (
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A limit is all forms of one: what is bound under a name with an ID, whatever
// its numbers. A key has one state under it.
type limit struct {
	name    string                   // what it is bound under, and its ID
	segment string                   // the name in keys
	last    atomic.Pointer[form]     // that was bound
	before  atomic.Pointer[[]string] // limits whose place it may have taken, as the script takes them; nil for none
	list    atomic.Pointer[list]     // in which it was bound last

	together []string // segments, of it and those that it was bound together with; guarded by the store's lock
}

// stateName returns the name of a limit's states: the name that it is bound
// under and its ID, which a slash parts. One in the name itself is escaped.
func stateName(name string, l stint.Limit) string {
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(name) + "/" + l.ID()
}

// A form is a limit as the script takes it.
type form struct {
	limit    stint.Limit
	text     string // the limit's
	capacity int64
	args     []string      // letter and numbers, or those of fast
	calendar *calendar     // whose bounds follow args; nil without
	fast     *fastBucket   // nil if it needs the general path
	entries  int64         // that a state may hold, of a log or of parts
	longest  time.Duration // after which a charge counts for nothing
}

// A fastBucket is a bucket or queue of small numbers: two drains of it, and an hour
// beside, are well below 2^53.
type fastBucket struct {
	step, full, div int64 // step and full in 1/div µs
	queue           bool
}

// longestPeriod bounds the gaps between entries of a log: two of it are below
// 2^51 µs.
const longestPeriod = 35 * 365 * 24 * time.Hour

// formOf returns the form of a limit, or why it cannot be held.
func formOf(l stint.Limit, maxLog int64) (*form, error) {
	m, err := l.Meter()
	if err != nil {
		return nil, err
	}
	f := &form{limit: l, text: l.String(), capacity: l.Capacity(), longest: m.Longest()}
	count, capacity := number(l.Count()), number(f.capacity)
	switch l.Algorithm() {
	case meter.GCRA, meter.LeakyQueue:
		f.bucket()
	case meter.TokenBucketInterval:
		f.args = []string{"i", span(l.Period()), count, capacity}
	case meter.FixedWindow:
		if unit, zone := l.Calendar(); unit != "" {
			f.args = []string{"c", unit + " " + zone, count, flags(l)}
			f.calendar = &calendar{meter: m, monthly: unit == "month"}
		} else {
			f.args = []string{"w", span(l.Period()), count, flags(l)}
		}
	case meter.SlidingCounter:
		f.args = []string{"s", span(l.Period()), count, flags(l)}
	case meter.SlidingSubWindows:
		cuts := min(l.Parts(), int64(l.Period()))
		f.args, f.entries = []string{"b", span(l.Period()), count, flags(l), number(cuts)}, cuts+1
	case meter.SlidingLog:
		if l.Count() > maxLog {
			return nil, fmt.Errorf("redisstore: limit %q: a log of %d is more than the %d that this store keeps (Options.MaxLog): sliding_buckets needs far less",
				l.Name(), l.Count(), maxLog)
		}
		if l.Period() > longestPeriod {
			return nil, fmt.Errorf("redisstore: limit %q: a log of %v is longer than the %v that Redis can hold", l.Name(), l.Period(), longestPeriod)
		}
		f.args, f.entries = []string{"l", span(l.Period()), count, flags(l)}, l.Count()
	default:
		return nil, fmt.Errorf("redisstore: limit %q: %v is not known here", l.Name(), l.Algorithm())
	}
	return f, nil
}

// bucket computes T in µs, step/div in lowest terms.
func (f *form) bucket() {
	step := big.NewInt(int64(f.limit.Period()))
	div := new(big.Int).Mul(big.NewInt(f.limit.Count()), big.NewInt(1000))
	gcd := new(big.Int).GCD(nil, nil, step, div)
	step.Quo(step, gcd)
	div.Quo(div, gcd)
	full := new(big.Int).Mul(step, big.NewInt(f.capacity))
	queue := f.limit.Algorithm() == meter.LeakyQueue
	letter := map[bool]string{false: "g", true: "q"}[queue]
	if !full.IsInt64() || full.Int64() > 1<<50 || !div.IsInt64() || div.Int64() > 1<<30 {
		f.args = []string{strings.ToUpper(letter), step.String(), div.String(), number(f.capacity)}
		return
	}
	q := &fastBucket{step.Int64(), full.Int64(), div.Int64(), queue}
	head := "=" + letter + number(q.step) + ":" + number(q.div) + ":" + number(f.capacity) + ":"
	f.fast, f.args = q, []string{head, number(q.step), number(q.full), number(q.div)}
}

// span returns a period in µs, or in ns with an n where these are not whole.
func span(d time.Duration) string {
	if d%time.Microsecond == 0 {
		return number(int64(d / time.Microsecond))
	}
	return number(int64(d)) + "n"
}

// flags are d for count_denied, r for relaxed, and m where a part counts up to
// 2^32 − 1, as floor 0 has it.
func flags(l stint.Limit) string {
	s := ""
	if l.CountDenied() {
		s += "d"
	}
	if l.Relaxed() {
		s += "r"
	}
	if l.Algorithm() == meter.SlidingSubWindows && l.Count() < 1<<31 {
		s += "m"
	}
	return s
}

// A calendar gives the script the bounds of the windows around a time, which
// only floor 0 can tell. It may be used from many goroutines at once.
type calendar struct {
	meter   *meter.Meter
	monthly bool
	last    atomic.Pointer[bounds]
}

// bounds are windows one after the other, as arguments, and for which times
// they serve: with a window before and two after.
type bounds struct {
	from, until int64 // ns
	args        []string
}

// at returns the bounds around now: how many arguments follow, the index of
// the first window, then where each begins and the last ends, in µs.
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
	back := 36 * time.Hour
	if c.monthly {
		back = 45 * 24 * time.Hour
	}
	start := max(now-int64(back), 0)
	index, end := c.window(start)
	args := []string{number(int64(index)), micros(start), micros(end)}
	b := &bounds{from: now, until: now + 1}
	for range 8 { // 36 h or 45 days are a few windows; then two to come
		if end > now && b.until == now+1 {
			b.until = end
		}
		_, end = c.window(end)
		args = append(args, micros(end))
	}
	b.args = append([]string{number(int64(len(args)))}, args...)
	return b
}

// window returns the number of the window that holds a time, and its end; time
// itself ends with int64.
func (c *calendar) window(t int64) (index uint64, end int64) {
	state := make([]uint64, c.meter.Words())
	mark := c.meter.Reserve(&meter.Reservations{}, state, t, 1)
	return mark[1], t + int64(c.meter.Answer(state, t, 0, true).ResetAfter)
}

// micros rounds up: bounds are whole seconds, but for the end of time.
func micros(ns int64) string {
	us := ns / 1000
	if ns%1000 != 0 {
		us++
	}
	return number(us)
}
