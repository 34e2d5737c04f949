package meter

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// A Spec is the parameters of a limit as whole numbers. It is a comparable value: limits with equal
// specs decide alike. Package stint makes a Spec from a Limit.
type Spec struct {
	Zone        string // the IANA time zone of the calendar
	Count       int64  // units a period
	Period      time.Duration
	Burst       int64         // used where BurstSet; otherwise the burst is the count
	Debt        int64         // the most units below empty, for algorithms with a burst; 0 means the capacity
	SubWindows  int64         // parts of a window, for SlidingSubWindows; 0 means DefaultSubWindows
	Ban         time.Duration // how long a ban lasts that a denial begins; 0 for none
	Algorithm   Algorithm
	Calendar    CalendarUnit // with a calendar, Period is 0
	BurstSet    bool
	Relaxed     bool // a SlidingCounter admits one unit more
	CountDenied bool // denied requests count as if they had passed
	FromFirst   bool // a FixedWindow begins with the first request of a key
}

// The greatest values that a spec may have, and a default.
const (
	MaxSubWindows     = 3600
	DefaultSubWindows = 60
	MaxBan            = 10 * 365 * 24 * time.Hour
)

// NominalPeriod returns the period of the count. For a calendar it is nominal: 24 h for a day, 7
// days for a week, 30 for a month, 90 for a quarter, 365 for a year.
func (s Spec) NominalPeriod() time.Duration {
	if s.Calendar != NoCalendar {
		return s.Calendar.nominal()
	}
	return s.Period
}

// EffectiveBurst returns the burst in units. The default is the count; algorithms without a burst
// return 0.
func (s Spec) EffectiveBurst() int64 {
	switch {
	case !s.Algorithm.Takes(Burst):
		return 0
	case s.BurstSet:
		return s.Burst
	}
	return s.Count
}

// Parts returns the number of parts of a window in [SlidingSubWindows], and 0 in others.
func (s Spec) Parts() int64 {
	switch {
	case !s.Algorithm.Takes(Parts):
		return 0
	case s.SubWindows == 0:
		return DefaultSubWindows
	}
	return s.SubWindows
}

// Capacity returns the most units that can pass at one instant: the burst of a bucket, the count of
// a window, or for a queue the burst and the one unit that starts.
func (s Spec) Capacity() int64 {
	switch {
	case s.Algorithm.Queues():
		return s.EffectiveBurst() + 1
	case s.Algorithm.Takes(Burst):
		return s.EffectiveBurst()
	}
	return s.Count
}

// GreatestDebt returns how many units below empty a charge may take a bucket or a queue. The
// default is the capacity; algorithms without a burst return 0.
func (s Spec) GreatestDebt() int64 {
	switch {
	case !s.Algorithm.Takes(Debt):
		return 0
	case s.Debt != 0:
		return s.Debt
	}
	return s.Capacity()
}

// Validate returns nil if a limit can have these parameters. The error says what is wrong and what
// would be right.
func (s Spec) Validate() error {
	if s.Algorithm >= algorithms {
		return fmt.Errorf("unknown %v", s.Algorithm)
	}
	for _, check := range []func(Spec) error{Spec.checkNumbers, Spec.checkOptions, Spec.checkRange} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func (s Spec) checkNumbers() error {
	switch {
	case s.Count < 1:
		return fmt.Errorf("count %d: at least 1", s.Count)
	case !s.Calendar.known():
		return fmt.Errorf("calendar unit %d: none, day, week, month, quarter, year, or a month from day 1 to 31", s.Calendar)
	case s.Calendar == NoCalendar && s.Period < 1:
		return fmt.Errorf("period %v: at least 1ns", s.Period)
	case s.Calendar != NoCalendar && s.Period != 0:
		return errors.New("a calendar window has no other period")
	case s.BurstSet && s.Burst < 0, s.BurstSet && s.Burst == 0 && !s.Algorithm.Queues():
		return fmt.Errorf("burst %d: at least 1 (0 for leaky_queue alone)", s.Burst)
	case s.Debt < 0:
		return errors.New("debt 0: at least 1")
	case s.SubWindows < 0 || s.SubWindows > MaxSubWindows:
		return fmt.Errorf("parts %d: from 1 to %d", max(s.SubWindows, 0), MaxSubWindows)
	case s.Ban < 0 || s.Ban > MaxBan:
		return fmt.Errorf("ban %v: above 0 and at most %d days", max(s.Ban, 0), MaxBan/(24*time.Hour))
	}
	return nil
}

func (s Spec) checkOptions() error {
	for _, o := range []struct {
		Option
		given bool
	}{
		{Burst, s.BurstSet}, {Debt, s.Debt != 0}, {Parts, s.SubWindows != 0}, {Relaxed, s.Relaxed},
		{CountDenied, s.CountDenied}, {ByCalendar, s.Calendar != NoCalendar},
		{FromFirst, s.FromFirst},
	} {
		if o.given && !s.Algorithm.Takes(o.Option) {
			return fmt.Errorf("%v has no %v: %s", s.Algorithm, o.Option, o.Takers())
		}
	}
	switch {
	case s.Calendar != NoCalendar && s.FromFirst:
		return errors.New("a window begins by the calendar or with the first request")
	case s.Calendar != NoCalendar:
		_, err := LoadZone(s.Zone)
		return err
	case s.Zone != "":
		return errors.New("a zone goes with a calendar")
	}
	return nil
}

// checkRange refuses limits whose times overflow int64 nanoseconds: (burst + 1)·T and debt·T for
// buckets and the queue, two periods for algorithms that count in windows.
func (s Spec) checkRange() error {
	if !s.Algorithm.Evenly() && s.Period > math.MaxInt64/2 {
		return fmt.Errorf("period %v: at most %v", s.Period, time.Duration(math.MaxInt64/2))
	}
	if !s.Algorithm.Takes(Burst) {
		return nil
	}
	burst := s.EffectiveBurst()
	if s.Algorithm.Queues() && burst == math.MaxInt64 {
		return fmt.Errorf("burst %d: at most %d for leaky_queue", burst, int64(math.MaxInt64-1))
	}
	each := max(s.Period/time.Duration(s.Count), 1)
	switch {
	case s.tooLong(uint64(burst) + 1):
		return fmt.Errorf("burst %d at one unit each %v: (burst + 1) × period ÷ count must stay below 292 years", burst, each)
	case s.tooLong(uint64(s.Debt)):
		return fmt.Errorf("debt %d at one unit each %v: debt × period ÷ count must stay below 292 years", s.Debt, each)
	}
	return nil
}

// tooLong reports whether so many units take more than int64 nanoseconds.
func (s Spec) tooLong(units uint64) bool {
	hi, lo := bits.Mul64(units, uint64(s.Period))
	maxHi, maxLo := bits.Mul64(math.MaxInt64, uint64(s.Count))
	return hi > maxHi || hi == maxHi && lo > maxLo
}
