package stint

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
	"unicode/utf8"
)

// A Limit says how much may pass: a count in a period, by one of the algorithms. It
// is an immutable, comparable value of whole numbers, so that nothing is lost
// to rounding: 7 a minute is 7 and a minute, never 8.571428571 s.
//
// Make one with [Parse], [New] or [PerSecond] and refine it with the With
// methods; each returns a new value. What cannot be held (a count of zero, a
// burst on a window) is reported by [Limit.Validate], which [Parse],
// [NewMeter] and [NewLimiter] call, so a wrong limit never decides anything.
//
// The zero Limit is not valid.
type Limit struct {
	name        string
	zone        string
	count       int64
	period      int64 // nanoseconds; 0 for a calendar
	burst       int64 // meaningful when burstSet
	parts       int64 // 0 for the default
	algorithm   Algorithm
	calendar    calendarUnit
	burstSet    bool // false when the burst is the count
	relaxed     bool
	countDenied bool
}

// The greatest values that a limit may hold, and a default.
const (
	maxParts     = 3600
	defaultParts = 60
	maxName      = 256
)

// New returns the limit of count units per period, of algorithm [GCRA] with a burst
// of count.
func New(count int64, period time.Duration) Limit {
	return Limit{count: count, period: int64(period)}
}

// PerSecond returns New(count, time.Second).
func PerSecond(count int64) Limit { return New(count, time.Second) }

// PerMinute returns New(count, time.Minute).
func PerMinute(count int64) Limit { return New(count, time.Minute) }

// PerHour returns New(count, time.Hour).
func PerHour(count int64) Limit { return New(count, time.Hour) }

// Every returns the limit of one unit each gap: at least gap lies between any
// two.
func Every(gap time.Duration) Limit { return New(1, gap) }

// PerDayIn returns the fixed window of count units per calendar day in an IANA
// time zone such as "Europe/Paris" or "UTC".
func PerDayIn(count int64, zone string) Limit {
	return Limit{count: count, algorithm: FixedWindow, calendar: calendarDay, zone: zone}
}

// PerMonthIn returns the fixed window of count units per calendar month in an
// IANA time zone.
func PerMonthIn(count int64, zone string) Limit {
	return Limit{count: count, algorithm: FixedWindow, calendar: calendarMonth, zone: zone}
}

// WithName returns the limit under a name of its own, which tells it apart from
// others that are bound with it, also after a change of its algorithm or period; see
// [Limit.ID]. At most 256 bytes of UTF-8, no control characters.
func (l Limit) WithName(name string) Limit { l.name = name; return l }

// WithAlgorithm returns the limit as another algorithm.
func (l Limit) WithAlgorithm(algorithm Algorithm) Limit { l.algorithm = algorithm; return l.plain() }

// WithBurst returns the limit with another burst, in units: for buckets the
// most that passes at one instant, for the queue the most that waits.
func (l Limit) WithBurst(burst int64) Limit {
	l.burst, l.burstSet = burst, true
	return l.plain()
}

// WithParts returns the limit with its window cut into another number of
// parts, at most 3,600; for [SlidingSubWindows]. The default value is 60.
func (l Limit) WithParts(parts int64) Limit {
	if l.parts = parts; parts == 0 {
		l.parts = -1 // asked for, and refused by Validate
	}
	return l.plain()
}

// plain drops what the algorithm has anyway, so that equal limits are equal values.
func (l Limit) plain() Limit {
	if l.burst == l.count && l.algorithm.hasBurst() {
		l.burst, l.burstSet = 0, false
	}
	if l.parts == defaultParts && l.algorithm == SlidingSubWindows {
		l.parts = 0
	}
	return l
}

// WithRelaxed returns the [SlidingCounter] that admits one unit more, as some
// articles and libraries have it.
func (l Limit) WithRelaxed() Limit { l.relaxed = true; return l }

// WithCountDenied returns the limit that counts denied requests as if they had
// passed, so that a client that keeps hammering stays out; for windows, the
// log, the counter and the parts.
func (l Limit) WithCountDenied() Limit { l.countDenied = true; return l }

// Name returns the limit's own name, else its text.
func (l Limit) Name() string {
	if l.name != "" {
		return l.name
	}
	return l.String()
}

// Algorithm returns the algorithm.
func (l Limit) Algorithm() Algorithm { return l.algorithm }

// Count returns the units per period.
func (l Limit) Count() int64 { return l.count }

// Period returns the stretch that the count is for; for a calendar day 24 h
// and for a calendar month 30 days, in name only.
func (l Limit) Period() time.Duration {
	switch l.calendar {
	case calendarDay:
		return 24 * time.Hour
	case calendarMonth:
		return 30 * 24 * time.Hour
	}
	return time.Duration(l.period)
}

// Burst returns the burst in units: the count unless given, 0 for algorithms that
// have none.
func (l Limit) Burst() int64 {
	if !l.algorithm.hasBurst() {
		return 0
	}
	if l.burstSet {
		return l.burst
	}
	return l.count
}

// Parts returns the number of parts of a [SlidingSubWindows] limit, else 0.
func (l Limit) Parts() int64 {
	if l.algorithm != SlidingSubWindows {
		return 0
	}
	if l.parts == 0 {
		return defaultParts
	}
	return l.parts
}

// Relaxed reports whether the limit is a relaxed [SlidingCounter].
func (l Limit) Relaxed() bool { return l.relaxed }

// CountDenied reports whether denied requests count.
func (l Limit) CountDenied() bool { return l.countDenied }

// Calendar returns "day" or "month" and the zone of a calendar window, else
// two empty strings.
func (l Limit) Calendar() (unit, zone string) { return l.calendar.String(), l.zone }

// Capacity returns the most that could ever pass at one instant, in units: the
// burst of a bucket, the count of a window, the burst and the one that starts
// for the queue.
func (l Limit) Capacity() int64 {
	switch {
	case l.algorithm == LeakyQueue:
		return l.Burst() + 1
	case l.algorithm.hasBurst():
		return l.Burst()
	}
	return l.count
}

// Validate returns nil if the limit can be held, else an error that says what
// is wrong and what would be right.
func (l Limit) Validate() error {
	if l.algorithm >= algorithms {
		return fmt.Errorf("stint: limit of unknown %v", l.algorithm)
	}
	if err := l.check(); err != nil {
		return fmt.Errorf("stint: limit %q: %w", clip(l.Name()), err)
	}
	return nil
}

func (l Limit) check() error {
	for _, check := range []func(Limit) error{
		Limit.checkName, Limit.checkNumbers, Limit.checkOptions, Limit.checkRange,
	} {
		if err := check(l); err != nil {
			return err
		}
	}
	return nil
}

func (l Limit) checkName() error {
	switch {
	case len(l.name) > maxName:
		return fmt.Errorf("name of %d bytes: at most %d", len(l.name), maxName)
	case !utf8.ValidString(l.name) || strings.ContainsFunc(l.name, isControl):
		return errors.New("name must be UTF-8 without control characters")
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

func (l Limit) checkNumbers() error {
	switch {
	case l.count < 1:
		return fmt.Errorf("count %d: at least 1", l.count)
	case l.calendar == calendarNone && l.period < 1:
		return fmt.Errorf("period %v: at least 1ns", time.Duration(l.period))
	case l.calendar != calendarNone && l.period != 0:
		return errors.New("a calendar window has no other period")
	case l.burstSet && l.burst < 0, l.burstSet && l.burst == 0 && l.algorithm != LeakyQueue:
		return fmt.Errorf("burst %d: at least 1 (0 for leaky_queue alone)", l.burst)
	case l.parts < 0 || l.parts > maxParts:
		return fmt.Errorf("parts %d: from 1 to %d", max(l.parts, 0), maxParts)
	}
	return nil
}

func (l Limit) checkOptions() error {
	switch {
	case l.burstSet && !l.algorithm.hasBurst():
		return fmt.Errorf("%v has no burst: buckets and leaky_queue have one", l.algorithm)
	case l.parts != 0 && l.algorithm != SlidingSubWindows:
		return fmt.Errorf("%v has no parts: sliding_buckets has them", l.algorithm)
	case l.relaxed && l.algorithm != SlidingCounter:
		return fmt.Errorf("%v cannot be relaxed: sliding_counter can", l.algorithm)
	case l.countDenied && !l.algorithm.countsDenied():
		return fmt.Errorf("%v cannot count_denied: windows, logs, counters and parts can", l.algorithm)
	case l.calendar != calendarNone && l.algorithm != FixedWindow:
		return fmt.Errorf("%v cannot follow a calendar: fixed_window can", l.algorithm)
	case l.calendar == calendarNone && l.zone != "":
		return errors.New("a zone goes with a calendar day or month")
	case l.calendar != calendarNone:
		_, err := loadZone(l.zone)
		return err
	}
	return nil
}

// checkRange refuses what int64 nanoseconds cannot hold: (burst + 1)·T for
// buckets and the queue, two periods for what counts in windows.
func (l Limit) checkRange() error {
	if l.algorithm != GCRA && l.algorithm != LeakyQueue && l.period > math.MaxInt64/2 {
		return fmt.Errorf("period %v: at most %v", time.Duration(l.period), time.Duration(math.MaxInt64/2))
	}
	if !l.algorithm.hasBurst() {
		return nil
	}
	if l.algorithm == LeakyQueue && l.Burst() == math.MaxInt64 {
		return fmt.Errorf("burst %d: at most %d for leaky_queue", l.Burst(), int64(math.MaxInt64-1))
	}
	hi, lo := bits.Mul64(uint64(l.Burst())+1, uint64(l.period))
	maxHi, maxLo := bits.Mul64(math.MaxInt64, uint64(l.count))
	if hi > maxHi || hi == maxHi && lo > maxLo {
		return fmt.Errorf("burst %d at one unit each %v: (burst + 1) × period ÷ count must stay below 292 years",
			l.Burst(), time.Duration(max(l.period/l.count, 1)))
	}
	return nil
}

// String returns the limit as canonical text, which [Parse] reads back to the
// same limit but for its name.
func (l Limit) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d/", l.count)
	if l.calendar != calendarNone {
		b.WriteString(l.calendar.String())
	} else {
		b.WriteString(formatPeriod(l.period))
	}
	if l.burstSet {
		fmt.Fprintf(&b, " burst %d", l.burst)
	}
	if l.algorithm != GCRA && l.calendar == calendarNone {
		b.WriteString(" " + l.algorithm.String())
	}
	if l.parts != 0 {
		fmt.Fprintf(&b, " parts %d", l.parts)
	}
	if l.relaxed {
		b.WriteString(" relaxed")
	}
	if l.countDenied {
		b.WriteString(" count_denied")
	}
	if l.calendar != calendarNone {
		b.WriteString(" in " + l.zone)
	}
	return b.String()
}

// formatPeriod is Duration.String without units that are zero: 1h, not 1h0m0s.
func formatPeriod(ns int64) string {
	s := time.Duration(ns).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
