package meter

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// A Spec is the parameters of a limit, in whole numbers. It is a comparable
// value: limits with equal specs decide alike. Package stint makes it from text
// and from a Limit.
type Spec struct {
	Zone        string // of a calendar: its IANA time zone
	Count       int64  // units a period
	Period      time.Duration
	Burst       int64         // where BurstSet; else it is the count
	Debt        int64         // of what has a burst: units below empty at the most; 0 is as many as are its capacity
	SubWindows  int64         // of a window, for SlidingSubWindows; 0 is DefaultSubWindows
	Ban         time.Duration // that a denial begins; 0 for none
	Algorithm   Algorithm
	Calendar    CalendarUnit // then Period is 0
	BurstSet    bool
	Relaxed     bool // a SlidingCounter that admits one unit more
	CountDenied bool // denied requests count as if they had passed
}

// The most that a spec may have, and a default.
const (
	MaxSubWindows     = 3600
	DefaultSubWindows = 60
	MaxBan            = 10 * 365 * 24 * time.Hour
)

// NominalPeriod returns the stretch that the count is for; of a calendar in name only: 24 h
// for a day, 7 days for a week, 30 for a month, 90 for a quarter, 365 for a year.
func (s Spec) NominalPeriod() time.Duration {
	if s.Calendar != NoCalendar {
		return s.Calendar.nominal()
	}
	return s.Period
}

// EffectiveBurst returns the burst in units: the count unless given, 0 for
// algorithms that have none.
func (s Spec) EffectiveBurst() int64 {
	switch {
	case !s.Algorithm.HasBurst():
		return 0
	case s.BurstSet:
		return s.Burst
	}
	return s.Count
}

// Parts returns the number of parts of a SlidingSubWindows, else 0.
func (s Spec) Parts() int64 {
	switch {
	case s.Algorithm != SlidingSubWindows:
		return 0
	case s.SubWindows == 0:
		return DefaultSubWindows
	}
	return s.SubWindows
}

// Capacity returns the most that could ever pass at one instant, in units: the
// burst of a bucket, the count of a window, the burst and the one that starts
// for the queue.
func (s Spec) Capacity() int64 {
	switch {
	case s.Algorithm == LeakyQueue:
		return s.EffectiveBurst() + 1
	case s.Algorithm.HasBurst():
		return s.EffectiveBurst()
	}
	return s.Count
}

// GreatestDebt returns how many units below empty a charge may take a bucket or a queue:
// the capacity unless given, 0 for algorithms that have no burst.
func (s Spec) GreatestDebt() int64 {
	switch {
	case !s.Algorithm.HasBurst():
		return 0
	case s.Debt != 0:
		return s.Debt
	}
	return s.Capacity()
}

// Validate returns nil if a limit of these parameters can be held, else what is
// wrong and what would be right.
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
	case s.BurstSet && s.Burst < 0, s.BurstSet && s.Burst == 0 && s.Algorithm != LeakyQueue:
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
	switch {
	case s.BurstSet && !s.Algorithm.HasBurst():
		return fmt.Errorf("%v has no burst: buckets and leaky_queue have one", s.Algorithm)
	case s.Debt != 0 && !s.Algorithm.HasBurst():
		return fmt.Errorf("%v has no debt: buckets and leaky_queue have one", s.Algorithm)
	case s.SubWindows != 0 && s.Algorithm != SlidingSubWindows:
		return fmt.Errorf("%v has no parts: sliding_buckets has them", s.Algorithm)
	case s.Relaxed && s.Algorithm != SlidingCounter:
		return fmt.Errorf("%v cannot be relaxed: sliding_counter can", s.Algorithm)
	case s.CountDenied && !s.Algorithm.CountsDenied():
		return fmt.Errorf("%v cannot count_denied: windows, logs, counters and parts can", s.Algorithm)
	case s.Calendar != NoCalendar && s.Algorithm != FixedWindow:
		return fmt.Errorf("%v cannot follow a calendar: fixed_window can", s.Algorithm)
	case s.Calendar == NoCalendar && s.Zone != "":
		return errors.New("a zone goes with a calendar")
	case s.Calendar != NoCalendar:
		_, err := LoadZone(s.Zone)
		return err
	}
	return nil
}

// checkRange refuses what int64 nanoseconds cannot hold: (burst + 1)·T and debt·T for
// buckets and the queue, two periods for what counts in windows.
func (s Spec) checkRange() error {
	if s.Algorithm != GCRA && s.Algorithm != LeakyQueue && s.Period > math.MaxInt64/2 {
		return fmt.Errorf("period %v: at most %v", s.Period, time.Duration(math.MaxInt64/2))
	}
	if !s.Algorithm.HasBurst() {
		return nil
	}
	burst := s.EffectiveBurst()
	if s.Algorithm == LeakyQueue && burst == math.MaxInt64 {
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

// An Algorithm is the algorithm of a limit. docs/LIMITS.md introduces each of them;
// docs/SEMANTICS.md says exactly what each admits.
type Algorithm uint8

const (
	// GCRA is the token bucket that fills little by little, the leaky bucket
	// used as a meter and the generic cell rate algorithm: one arithmetic by
	// three names. It admits bursts up to the burst and never more than
	// burst + d/T in any stretch d, T being the time that one unit takes.
	GCRA Algorithm = iota
	// TokenBucketInterval is the token bucket that is filled in lumps: count
	// tokens at each whole multiple of the period since the Unix epoch.
	TokenBucketInterval
	// LeakyQueue is the leaky bucket used as a queue: what it admits starts
	// at an even pace, after a delay, and at most burst units wait.
	LeakyQueue
	// FixedWindow counts in windows aligned to the Unix epoch, or in those of a
	// calendar. Twice the count may pass around an edge.
	FixedWindow
	// SlidingLog remembers every admission of the last period: exact, and
	// paid for with memory.
	SlidingLog
	// SlidingCounter weighs the window before by what still overlaps.
	SlidingCounter
	// SlidingSubWindows cuts the window into equal parts and counts in each.
	SlidingSubWindows

	algorithms = iota
)

var algorithmNames = [algorithms]string{
	"gcra", "token_bucket_interval", "leaky_queue", "fixed_window",
	"sliding_log", "sliding_counter", "sliding_buckets",
}

// algorithmAliases are further names that text may use.
var algorithmAliases = map[string]Algorithm{"token_bucket": GCRA, "leaky_bucket": GCRA}

// AlgorithmNames returns all names that text may use, aliases first.
func AlgorithmNames() []string {
	return append([]string{"token_bucket", "leaky_bucket"}, algorithmNames[:]...)
}

// String returns the name that limits as text use: "gcra", "leaky_queue", ….
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// ParseAlgorithm returns the algorithm of a name or an alias, and whether there
// is one.
func ParseAlgorithm(word string) (Algorithm, bool) {
	if a, ok := algorithmAliases[word]; ok {
		return a, true
	}
	for a, name := range algorithmNames {
		if name == word {
			return Algorithm(a), true
		}
	}
	return 0, false
}

// HasBurst reports whether limits of the algorithm hold a burst.
func (a Algorithm) HasBurst() bool {
	return a == GCRA || a == TokenBucketInterval || a == LeakyQueue
}

// CountsDenied reports whether limits of the algorithm can count what they deny.
func (a Algorithm) CountsDenied() bool {
	return a == FixedWindow || a == SlidingLog || a == SlidingCounter || a == SlidingSubWindows
}

// aligned reports whether the algorithm needs the time of day: its windows begin at
// multiples of the period since the Unix epoch.
func (a Algorithm) aligned() bool {
	return a == TokenBucketInterval || a == FixedWindow || a == SlidingCounter || a == SlidingSubWindows
}
