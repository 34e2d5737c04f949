package stint

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/meter"
)

// A Limit says how much may pass: a count in a period, by one of the algorithms. It
// is an immutable, comparable value of whole numbers, so that nothing is lost
// to rounding: 7 a minute is 7 and a minute, never 8.571428571 s.
//
// Make one with [Parse], [New] or [PerSecond] and refine it with the With methods;
// each returns a new value. [Limit.Validate] reports an invalid limit, such as one with
// a count of zero or a window with a burst. [Parse], [NewLimiter] and [Limit.Meter]
// call it, so an invalid limit never decides anything.
//
// The zero Limit is not valid.
type Limit struct {
	name     string
	spec     meter.Spec
	inFlight bool // spec has a count alone
}

// maxName is the greatest length of a name, in bytes.
const maxName = 256

// New returns the limit of count units per period, of algorithm [GCRA] with a burst
// of count.
func New(count int64, period time.Duration) Limit {
	return Limit{spec: meter.Spec{Count: count, Period: period}}
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

// PerIn returns the fixed window of count units per unit of the calendar, such as
// [meter.Quarter] or [meter.MonthFrom](15), in an IANA time zone.
func PerIn(count int64, unit meter.CalendarUnit, zone string) Limit {
	return Limit{spec: meter.Spec{Count: count, Algorithm: meter.FixedWindow, Calendar: unit, Zone: zone}}
}

// PerDayIn returns the fixed window of count units per calendar day in an IANA
// time zone such as "Europe/Paris" or "UTC".
func PerDayIn(count int64, zone string) Limit {
	return PerIn(count, meter.Day, zone)
}

// PerMonthIn returns the fixed window of count units per calendar month in an
// IANA time zone.
func PerMonthIn(count int64, zone string) Limit {
	return PerIn(count, meter.Month, zone)
}

// WithName returns the limit under a name of its own, which identifies it among
// others of the same algorithm and period that are bound with it; see [Limit.ID]. At
// most 256 bytes of UTF-8, no control characters.
func (l Limit) WithName(name string) Limit { l.name = name; return l }

// An Algorithm is the algorithm of a limit. docs/LIMITS.md introduces each of them.
type Algorithm = meter.Algorithm

// The algorithms, for [Limit.WithAlgorithm]; package meter says what each admits.
const (
	GCRA                = meter.GCRA
	TokenBucketInterval = meter.TokenBucketInterval
	LeakyQueue          = meter.LeakyQueue
	FixedWindow         = meter.FixedWindow
	SlidingLog          = meter.SlidingLog
	SlidingCounter      = meter.SlidingCounter
	SlidingSubWindows   = meter.SlidingSubWindows
)

// WithAlgorithm returns the limit as another algorithm, such as [SlidingLog].
func (l Limit) WithAlgorithm(algorithm Algorithm) Limit {
	l.spec.Algorithm = algorithm
	return l.plain()
}

// WithBurst returns the limit with another burst, in units: for buckets the
// most that passes at one instant, for the queue the most that waits.
func (l Limit) WithBurst(burst int64) Limit {
	l.spec.Burst, l.spec.BurstSet = burst, true
	return l.plain()
}

// WithDebt returns the limit with another greatest debt, at least 1: how many units
// below empty a settlement above its reservation can take a bucket or a queue. Units
// beyond the debt are forgiven. The default value is [Limit.Capacity].
func (l Limit) WithDebt(debt int64) Limit {
	if l.spec.Debt = debt; debt == 0 {
		l.spec.Debt = -1 // 0 was asked for, which Validate refuses
	}
	return l
}

// WithBan returns the limit with a ban, above 0 and at most 3,650 days: after a denial, it
// denies every request of the key for that long. Requests denied meanwhile do not prolong
// the ban. [Limiter.Block] bans a key without a denial.
func (l Limit) WithBan(ban time.Duration) Limit {
	if l.spec.Ban = ban; ban == 0 {
		l.spec.Ban = -1 // 0 was asked for, which Validate refuses
	}
	return l
}

// WithParts returns the limit with its window cut into another number of
// parts, at most 3,600; for [SlidingSubWindows]. The default value is 60.
func (l Limit) WithParts(parts int64) Limit {
	if l.spec.SubWindows = parts; parts == 0 {
		l.spec.SubWindows = -1 // 0 was asked for, which Validate refuses
	}
	return l.plain()
}

// plain drops options that equal the algorithm's default, so that equal limits are equal
// values.
func (l Limit) plain() Limit {
	s := &l.spec
	if s.Burst == s.Count && s.Algorithm.Takes(meter.Burst) {
		s.Burst, s.BurstSet = 0, false
	}
	if s.SubWindows == meter.DefaultSubWindows && s.Algorithm.Takes(meter.Parts) {
		s.SubWindows = 0
	}
	return l
}

// WithRelaxed returns the [SlidingCounter] that admits one unit more, as in some articles
// and libraries.
func (l Limit) WithRelaxed() Limit { l.spec.Relaxed = true; return l }

// WithCountDenied returns the limit that counts denied requests as if they had passed, so
// that a client that does not slow down stays out. It is for all algorithms but buckets and
// queues.
func (l Limit) WithCountDenied() Limit { l.spec.CountDenied = true; return l }

// WithFromFirst returns the [FixedWindow] that begins with a key's first request,
// and anew with the first after it has ended, so that not all keys start over at
// once.
func (l Limit) WithFromFirst() Limit { l.spec.FromFirst = true; return l }

// Name returns the limit's own name, else its text.
func (l Limit) Name() string {
	if l.name != "" {
		return l.name
	}
	return l.String()
}

// Algorithm returns the algorithm.
func (l Limit) Algorithm() Algorithm { return l.spec.Algorithm }

// Count returns the units per period.
func (l Limit) Count() int64 { return l.spec.Count }

// Period returns the time that the count is for. For calendar windows it is nominal: 24 h
// for a day, 7 days for a week, 30 for a month, 90 for a quarter, 365 for a year.
func (l Limit) Period() time.Duration { return l.spec.NominalPeriod() }

// Burst returns the burst in units: the count unless given, 0 for algorithms that
// have none.
func (l Limit) Burst() int64 { return l.spec.EffectiveBurst() }

// Debt returns the greatest debt that the limit was given, in units; 0 for the default.
func (l Limit) Debt() int64 { return l.spec.Debt }

// Ban returns how long a ban is that a denial begins; 0 for none.
func (l Limit) Ban() time.Duration { return l.spec.Ban }

// Parts returns the number of parts of a [SlidingSubWindows] limit, else 0.
func (l Limit) Parts() int64 { return l.spec.Parts() }

// Relaxed reports whether the limit is a relaxed [SlidingCounter].
func (l Limit) Relaxed() bool { return l.spec.Relaxed }

// CountDenied reports whether denied requests count.
func (l Limit) CountDenied() bool { return l.spec.CountDenied }

// FromFirst reports whether windows begin with a key's first request.
func (l Limit) FromFirst() bool { return l.spec.FromFirst }

// Calendar returns the unit of a calendar window as in its text ("day", "month from 15"),
// and its zone; else two empty strings.
func (l Limit) Calendar() (unit, zone string) { return l.spec.Calendar.String(), l.spec.Zone }

// Capacity returns the most that could ever pass at one instant, in units: the burst of
// a bucket, the count of a window, and for a queue the burst plus the one that starts.
func (l Limit) Capacity() int64 { return l.spec.Capacity() }

// Validate returns nil if the limit is valid, else an error that says what is wrong and
// what would be right.
func (l Limit) Validate() error {
	if err := l.check(); err != nil {
		return fmt.Errorf("stint: limit %q: %w", wording.Shorten(l.Name()), err)
	}
	return nil
}

// Meter returns the arithmetic of the limit, for authors of a [Store], or the error
// of [Limit.Validate].
func (l Limit) Meter() (*meter.Meter, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if l.inFlight {
		return nil, fmt.Errorf("%w (limit %q)", ErrInFlight, wording.Shorten(l.Name()))
	}
	return meter.New(l.spec)
}

func (l Limit) check() error {
	if err := l.checkName(); err != nil {
		return err
	}
	if l.inFlight {
		return l.checkInFlight()
	}
	return l.spec.Validate()
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

// String returns the limit as canonical text, which [Parse] reads as the same limit
// without its own name.
func (l Limit) String() string {
	if l.inFlight {
		return strconv.FormatInt(l.spec.Count, 10) + " in flight"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d/", l.spec.Count)
	if l.spec.Calendar != meter.NoCalendar {
		b.WriteString(l.spec.Calendar.String())
	} else {
		b.WriteString(formatPeriod(l.spec.Period))
	}
	if l.spec.BurstSet {
		fmt.Fprintf(&b, " burst %d", l.spec.Burst)
	}
	if l.spec.Debt != 0 {
		fmt.Fprintf(&b, " debt %d", l.spec.Debt)
	}
	if l.spec.Algorithm != meter.GCRA && l.spec.Calendar == meter.NoCalendar {
		b.WriteString(" " + l.spec.Algorithm.String())
	}
	if l.spec.FromFirst {
		b.WriteString(" from first")
	}
	if l.spec.SubWindows != 0 {
		fmt.Fprintf(&b, " parts %d", l.spec.SubWindows)
	}
	if l.spec.Relaxed {
		b.WriteString(" relaxed")
	}
	if l.spec.CountDenied {
		b.WriteString(" count_denied")
	}
	if l.spec.Calendar != meter.NoCalendar {
		b.WriteString(" in " + l.spec.Zone)
	}
	if l.spec.Ban != 0 {
		b.WriteString(" ban " + formatPeriod(l.spec.Ban))
	}
	return b.String()
}

// formatPeriod is Duration.String without units that are zero: 1h, not 1h0m0s.
func formatPeriod(period time.Duration) string {
	s := period.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// State belongs to the name that limits are bound under ([Store.Bind]) and to a key. The
// ID tells several limits under one name apart.

// ID returns the text that identifies a limit among others under one name, and so the
// state of a key under it. It has the limit's own name, if there is one ([Limit.WithName]),
// its algorithm and its period, such as "gcra:1m" or "logins:gcra:1m", or its calendar,
// such as "day:Europe/Paris" or "month-15:UTC". For [meter.SlidingSubWindows] it also has
// the number of parts; for a window from a first request it is "fixed_window-first:1m", for
// a limit in flight "in_flight". It never has the count, burst, debt or ban, so these may
// change.
func (l Limit) ID() string {
	kind := l.spec.Algorithm.String()
	if l.spec.FromFirst {
		kind += "-first"
	}
	id := kind + ":" + formatPeriod(l.spec.Period)
	if l.inFlight {
		id = "in_flight"
	}
	if l.spec.Calendar != meter.NoCalendar {
		id = strings.Replace(l.spec.Calendar.String(), " from ", "-", 1) + ":" + l.spec.Zone
	}
	if l.spec.Algorithm.Takes(meter.Parts) {
		id += ":" + strconv.FormatInt(l.spec.Parts(), 10)
		if l.spec.Count > math.MaxInt32 {
			id += ":wide" // its counts take 64 bits
		}
	}
	if l.name != "" {
		return l.name + ":" + id
	}
	return id
}

// Label returns the limit's own name, else its ID, to tell it from other limits of a list.
func (l Limit) Label() string {
	if l.name != "" {
		return l.name
	}
	return l.ID()
}

// CheckBind returns why limits cannot be bound together under a name, or nil. Every
// [Store] calls it first. It does not check each limit by itself: [Limit.Validate] does.
func CheckBind(name string, limits []Limit) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("stint: limits under %w", err)
	}
	if len(limits) == 0 || len(limits) > MaxLimits {
		return fmt.Errorf("%w: %d limits under the name %q: from 1 to %d", ErrLayers, len(limits), name, MaxLimits)
	}
	known := make(map[string]bool, len(limits))
	for _, l := range limits {
		id := l.ID()
		if known[id] {
			return fmt.Errorf("%w: two limits %q under the name %q: give them names of their own, WithName", ErrLayers, wording.Shorten(id), name)
		}
		known[id] = true
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New(`an empty name: what keys have used belongs to it: write what they limit, such as "login"`)
	case len(name) > maxName:
		return fmt.Errorf("a name of %d bytes: at most %d", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, isControl):
		return fmt.Errorf("the name %q: it must be UTF-8 without control characters", name)
	}
	return nil
}
