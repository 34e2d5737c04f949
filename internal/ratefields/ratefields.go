// Package ratefields says in the fields of
// draft-ietf-httpapi-ratelimit-headers what limits allow and where a client
// stands, for HTTP and for gRPC.
package ratefields

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// MaxInteger is the greatest integer of a structured field (RFC 9651, 3.3.1).
const MaxInteger = 999_999_999_999_999

// A Limit is how fields tell of one limit. It does not change.
type Limit struct {
	Name   string        // without what a header may not hold
	Quoted string        // as a structured-field string, which is JSON too
	Quota  int64         // how many units it allows in Window
	Window int64         // in seconds
	Span   time.Duration // how long the whole capacity takes to come back

	// The values of fields that do not depend on a decision, in slices that an append
	// copies and all answers share.
	Policy  []string // RateLimit-Policy: "name";q=100;w=60
	Unnamed []string // the same as drafts without names have it: 100;w=60
	Most    []string // what passes at once

	InFlight bool // it is no quota over time, and has no fields but its name

	head   string // `"name";r=`
	count  int64  // units per period, for limits that give back at a pace; else 0
	period time.Duration
}

// Of returns how fields tell of a limit under a name.
func Of(name string, l stint.Limit) Limit {
	f := Limit{Name: Printable(name)}
	f.Quoted = Quote(f.Name)
	if f.InFlight = l.InFlight(); f.InFlight {
		return f
	}
	f.head = f.Quoted + ";r="
	f.Span = span(l)
	f.Quota, f.Window = quota(l, f.Span)
	quota := strconv.FormatInt(f.Quota, 10) + ";w=" + strconv.FormatInt(f.Window, 10)
	f.Policy, f.Unnamed, f.Most = One(f.Quoted+";q="+quota), One(quota), One(strconv.FormatInt(l.Capacity(), 10))
	if l.Algorithm().Takes(meter.Burst) {
		f.count, f.period = l.Count(), l.Period()
	}
	return f
}

// One returns a slice of one value that an append copies.
func One(value string) []string { return []string{value}[:1:1] }

// Reset returns what a decision on several limits says of one of them alone: its
// ResetAfter is the longest of all, and at most Span is likely this limit's.
func (f *Limit) Reset(d *stint.Decision, limits int) time.Duration {
	if limits == 1 {
		return d.ResetAfter
	}
	return min(d.ResetAfter, f.Span)
}

// Wait returns how long a client waits until its limit is as if never used, or
// until the denied request would pass. The ResetAfter of d is to be that of
// this limit alone.
func (f *Limit) Wait(d *stint.Decision) time.Duration {
	if retry, ok := d.RetryAfter.Duration(); ok && !d.Allowed {
		return retry
	}
	return d.ResetAfter
}

// RateLimit returns where a client stands, as RateLimit has it: "name";r=4;t=12.
// A bucket's t is long enough that r/t is never above its pace.
func (f *Limit) RateLimit(d *stint.Decision) string {
	remaining, wait := Remaining(d), f.Wait(d)
	if f.count > 0 && (d.Allowed || d.RetryAfter == stint.Never) {
		wait = max(wait, time.Duration(MulDiv(remaining, int64(f.period), f.count)))
	}
	var buf [128]byte
	b := append(buf[:0], f.head...)
	b = strconv.AppendInt(b, remaining, 10)
	b = append(b, ";t="...)
	b = strconv.AppendInt(b, min(max(Seconds(wait), 1), MaxInteger), 10)
	return string(b)
}

// Remaining returns the units that a decision leaves, as fields can hold them.
func Remaining(d *stint.Decision) int64 { return min(max(d.Remaining, 0), MaxInteger) }

// quota returns what a limit allows as a policy says it: q units in a window
// of w whole seconds. It is the capacity, so that what remains is never above
// it, and the time in which that comes back; a limit by the period alone, such
// as 100 per minute, is 100 and 60.
func quota(l stint.Limit, d time.Duration) (q, w int64) {
	q = l.Capacity()
	if d < time.Second { // as many as pass in the shortest window that fields can name
		q, d = max(MulDiv(q, int64(time.Second), max(int64(d), 1)), 1), time.Second
	}
	return min(q, MaxInteger), min(Seconds(d), MaxInteger)
}

// span returns how long a key's whole capacity takes to come back.
func span(l stint.Limit) time.Duration {
	switch a := l.Algorithm(); {
	case a.Evenly():
		return time.Duration(MulDiv(l.Capacity(), int64(l.Period()), l.Count()))
	case a.Takes(meter.Burst): // it comes back in lumps
		lumps := (l.Capacity()-1)/l.Count() + 1
		return time.Duration(MulDiv(lumps, int64(l.Period()), 1))
	}
	return l.Period()
}

// MulDiv returns a·b/c rounded up, for values that are not negative, or the
// greatest int64.
func MulDiv(a, b, c int64) int64 {
	const most = 1<<63 - 1
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return most
	}
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		q++
	}
	return int64(min(q, most))
}

// Seconds rounds up.
func Seconds(d time.Duration) int64 { return stint.Wait(max(d, 0)).Seconds() }

// Printable returns a name with those bytes percent-encoded that no header may
// hold, such as line breaks and letters beyond ASCII.
func Printable(name string) string {
	const hex = "0123456789ABCDEF"
	var b []byte
	for i, c := range []byte(name) {
		switch bad := c < ' ' || c > '~'; {
		case bad && b == nil:
			b = append(append(make([]byte, 0, len(name)+8), name[:i]...), '%', hex[c>>4], hex[c&15])
		case bad:
			b = append(b, '%', hex[c>>4], hex[c&15])
		case b != nil:
			b = append(b, c)
		}
	}
	if b == nil {
		return name
	}
	return string(b)
}

// Quote returns printable text as a structured-field string (RFC 9651, 3.3.3),
// which is a JSON string as well.
func Quote(text string) string {
	b := append(make([]byte, 0, len(text)+2), '"')
	for _, c := range []byte(text) {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(append(b, '"'))
}
