package meter

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/uint128"
)

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
	// FixedWindow counts in windows aligned to the Unix epoch, in those of a
	// calendar, or in one that begins with a key's first request. Twice the count
	// may pass around an edge.
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

// kinds has one entry for each algorithm. The entry's variable is in the file of that algorithm.
var kinds = [...]*kind{
	GCRA:                &bucketKind,
	TokenBucketInterval: &lumpsKind,
	LeakyQueue:          &queueKind,
	FixedWindow:         &windowKind,
	SlidingLog:          &logKind,
	SlidingCounter:      &counterKind,
	SlidingSubWindows:   &partsKind,
}

// This line does not compile while an algorithm has no entry in kinds.
var _ [len(kinds) - algorithms]struct{}

// A kind describes an algorithm as far as it is the same for all its limits, whatever their rates.
type kind struct {
	name    string   // the name that text uses
	aliases []string // more names that text may use
	options Option   // the options that its limits take

	evenly   bool // a unit comes back each period ÷ count
	queues   bool // a request that passes may have to wait before it starts
	wearsOff bool // a charge counts for less and less
	aligned  bool // windows begin at multiples of the period, so the time of day is needed
	log      bool // a state grows with what it holds: the arithmetic is a grower

	// of computes the constants of a meter, and returns the meter as an arithmetic.
	of func(*Meter) arithmetic
}

// An arithmetic is a [Meter] as one algorithm sees it. [Meter] itself answers requests whose cost
// is 0 or above the capacity, so the cost c in admits and wait is from 1 to the capacity.
//
// Stores, waiting and the tests of all algorithms rely on these laws: an unseen key admits the
// capacity at any time; what is admitted at some time is admitted later, too, while nothing is
// charged; an idle state decides as an unseen one does; at the end of reset there is room for
// the capacity; and remaining is the greatest cost that is admitted. The exceptions of clocks
// that go back are those of docs/SEMANTICS.md.
type arithmetic interface {
	words() int                                                        // the least number of words in a state
	admits(s []uint64, t, c uint64) bool                               // also forgets what no longer counts
	charge(s []uint64, t, c uint64)                                    // charges even where there is no room
	level(s []uint64, t uint64) (remaining int64, reset time.Duration) // for an [Answer]
	wait(s []uint64, t, c uint64) time.Duration                        // for a cost that is not admitted now
	refund(s []uint64, t, n uint64)                                    // takes the newest units that count
	idle(s []uint64, t uint64) bool                                    // the state equals that of an unseen key
	sound(s []uint64) bool                                             // words from outside are a state
	longest() time.Duration                                            // how long a charge counts
	stamp(s []uint64, t uint64) uint64                                 // the window, part or moment that a charge of now goes to
	giveBack(r *Reservations, mark ChargeRef, s []uint64, t, n uint64) // takes n units from the charge of a mark
}

// Optional interfaces of an arithmetic.
type (
	// A shortcut decides in one step what otherwise takes admits, charge and level.
	shortcut interface {
		allow(s []uint64, t uint64, cost int64) bool
		take(s []uint64, t uint64, cost int64) (Answer, bool)
	}
	// A grower has states whose size in words grows with what they hold.
	grower interface {
		room(s []uint64, t uint64, cost int64) int
		move(to, from []uint64)
	}
	// In a rewriter, the amount that a reservation gives back depends on the charges made after it,
	// so open reservations must be kept.
	rewriter interface {
		chargeAmong(r *Reservations, s []uint64, t, c uint64, hasDelay bool)
	}
	// A drainer has states that drain at the rate of the limit, evenly over all charges, whenever
	// they were made.
	drainer interface {
		rewriter
		inUse(s []uint64, t uint64) uint128.Int // in the algorithm's own measure
		measure(n uint64) uint128.Int           // the same for n units, at most the greatest debt
		lower(s []uint64, t uint64, by uint128.Int)
		// The next three are called on a state that was charged at the rate of another limit.
		holds(old *Meter, s []uint64, t, c uint64) bool
		adopt(old *Meter, s []uint64, t uint64)
		through(old *Meter, s []uint64, t, c uint64, ok bool) Answer
	}
)

func (a Algorithm) kind() *kind {
	if int(a) < len(kinds) {
		return kinds[a]
	}
	return &unknown
}

var unknown kind // the kind of a number that is no algorithm

// Algorithms returns all algorithms.
func Algorithms() []Algorithm {
	all := make([]Algorithm, len(kinds))
	for i := range all {
		all[i] = Algorithm(i)
	}
	return all
}

// AlgorithmNames returns every name of an algorithm that text may use, aliases first.
func AlgorithmNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.aliases...)
	}
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// String returns the name that limits as text use: "gcra", "leaky_queue", ….
func (a Algorithm) String() string {
	if k := a.kind(); k != &unknown {
		return k.name
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// ParseAlgorithm returns the algorithm of a name or an alias. It returns false for a word that is
// neither.
func ParseAlgorithm(word string) (Algorithm, bool) {
	for a, k := range kinds {
		if k.name == word || slices.Contains(k.aliases, word) {
			return Algorithm(a), true
		}
	}
	return 0, false
}

// Takes reports whether limits of the algorithm take an option.
func (a Algorithm) Takes(o Option) bool { return a.kind().options&o != 0 }

// Evenly reports whether used units come back one by one, each after period ÷ count, as in [GCRA]
// and [LeakyQueue].
func (a Algorithm) Evenly() bool { return a.kind().evenly }

// Queues reports whether what passes may have to wait before it starts, as in
// [LeakyQueue].
func (a Algorithm) Queues() bool { return a.kind().queues }

// WearsOff reports whether a charge counts for less and less, as in [SlidingCounter], instead of
// counting whole until it ends.
func (a Algorithm) WearsOff() bool { return a.kind().wearsOff }

// KeepsLog reports whether a state grows with what it holds: see [Meter.Room].
func (a Algorithm) KeepsLog() bool { return a.kind().log }

// An Option is a parameter that limits of some algorithms take and others refuse.
type Option uint8

// The options.
const (
	Burst       Option = 1 << iota // the units that pass at once; in a queue, those that wait
	Debt                           // how far below empty a settlement may take the state
	Parts                          // the number of parts in a period
	Relaxed                        // the counter admits one unit more
	CountDenied                    // denied requests count as if they had passed
	ByCalendar                     // windows are those of a calendar
	FromFirst                      // a window begins with the first request of a key
)

var optionNames = [...]string{"burst", "debt", "parts", "relaxed", "count_denied", "calendar", "from first"}

// String returns the option's name in limits as text; "calendar" for [ByCalendar].
func (o Option) String() string {
	if i := bits.TrailingZeros8(uint8(o)); i < len(optionNames) {
		return optionNames[i]
	}
	return fmt.Sprintf("option(%d)", uint8(o))
}

// Options returns all options.
func Options() []Option {
	all := make([]Option, len(optionNames))
	for i := range all {
		all[i] = 1 << i
	}
	return all
}

// Takers names the algorithms that take the option, with the verb: "sliding_counter does".
func (o Option) Takers() string {
	var names []string
	for _, k := range kinds {
		if k.options&o != 0 {
			names = append(names, k.name)
		}
	}
	last := len(names) - 1
	if last == 0 {
		return names[0] + " does"
	}
	return strings.Join(names[:last], ", ") + " and " + names[last] + " do"
}
