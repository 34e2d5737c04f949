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

// kinds has the kind of each algorithm, which stands in the file of the algorithm.
var kinds = [...]*kind{
	GCRA:                &bucketKind,
	TokenBucketInterval: &lumpsKind,
	LeakyQueue:          &queueKind,
	FixedWindow:         &windowKind,
	SlidingLog:          &logKind,
	SlidingCounter:      &counterKind,
	SlidingSubWindows:   &partsKind,
}

// A constant without a kind does not compile.
var _ [len(kinds) - algorithms]struct{}

// A kind is what is so of an algorithm whatever the numbers of a limit, and its
// arithmetic.
type kind struct {
	name    string   // that limits as text use
	aliases []string // further names that text may use
	options Option   // that limits of it take

	evenly   bool // a unit comes back each period ÷ count
	queues   bool // what passes may have to wait before it starts
	wearsOff bool // a charge counts for less and less
	aligned  bool // it needs the time of day: its windows begin at multiples of the period
	log      bool // a state needs more words the more it holds: the arithmetic is a grower

	// of computes the constants of a meter, and returns it as the arithmetic.
	of func(*Meter) arithmetic
}

// An arithmetic is a [Meter] as one algorithm sees it. [Meter] answers what costs
// nothing or more than the capacity: in admits and wait, c is from 1 to that.
type arithmetic interface {
	words() int                                                        // of a state, at the least
	admits(s []uint64, t, c uint64) bool                               // and forgets what no longer counts
	charge(s []uint64, t, c uint64)                                    // room or not
	level(s []uint64, t uint64) (remaining int64, reset time.Duration) // of an [Answer]
	wait(s []uint64, t, c uint64) time.Duration                        // of what is not admitted now
	refund(s []uint64, t, n uint64)                                    // of the newest units that count
	idle(s []uint64, t uint64) bool                                    // as an unseen key
	sound(s []uint64) bool                                             // words from outside are a state
	longest() time.Duration                                            // that a charge counts
	place(s []uint64, t uint64) uint64                                 // the window, part or moment of a charge
	giveBack(r *Reservations, mark ChargeRef, s []uint64, t, n uint64) // of the charge of a mark
}

// What an arithmetic may have beside that.
type (
	// A shortcut decides in one step what admits, charge and level do in three.
	shortcut interface {
		allow(s []uint64, t uint64, cost int64) bool
		take(s []uint64, t uint64, cost int64) (Answer, bool)
	}
	// A grower has states that need more words the more they hold.
	grower interface {
		room(s []uint64, t uint64, cost int64) int
		move(to, from []uint64)
	}
	// For a rewriter, what a reservation gives back depends on what was charged
	// since, so that the open ones must be kept.
	rewriter interface {
		chargeAmong(r *Reservations, s []uint64, t, c uint64, hasDelay bool)
	}
	// A drainer has states that drain by the limit's numbers, evenly over what was
	// charged, whenever that was.
	drainer interface {
		rewriter
		inUse(s []uint64, t uint64) uint128.Int // in a measure of its own
		measure(n uint64) uint128.Int           // of units, no more than the greatest debt
		lower(s []uint64, t uint64, by uint128.Int)
		// Of states that have the numbers of another limit:
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

var unknown kind // of a number that is no algorithm

// Algorithms returns all of them.
func Algorithms() []Algorithm {
	all := make([]Algorithm, len(kinds))
	for i := range all {
		all[i] = Algorithm(i)
	}
	return all
}

// AlgorithmNames returns all names that text may use, aliases first.
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

// ParseAlgorithm returns the algorithm of a name or an alias, and whether there
// is one.
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

// Evenly reports whether units come back one by one, each period ÷ count, as in
// [GCRA] and [LeakyQueue].
func (a Algorithm) Evenly() bool { return a.kind().evenly }

// Queues reports whether what passes may have to wait before it starts, as in
// [LeakyQueue].
func (a Algorithm) Queues() bool { return a.kind().queues }

// WearsOff reports whether a charge counts for less and less, as in
// [SlidingCounter], and not whole to its end.
func (a Algorithm) WearsOff() bool { return a.kind().wearsOff }

// KeepsLog reports whether a state needs more words the more it holds: see
// [Meter.Room].
func (a Algorithm) KeepsLog() bool { return a.kind().log }

// An Option is what limits of some algorithms take, and others do not.
type Option uint8

// The options.
const (
	Burst       Option = 1 << iota // how much passes at once, and how much waits in a queue
	Debt                           // how far below empty a settlement takes it
	Parts                          // that a period is cut into
	Relaxed                        // one unit more
	CountDenied                    // denied requests count as if they had passed
	ByCalendar                     // windows are those of a calendar
)

var optionNames = [...]string{"burst", "debt", "parts", "relaxed", "count_denied", "calendar"}

// String returns the option's name in limits as text; "calendar" for [ByCalendar].
func (o Option) String() string {
	if i := bits.TrailingZeros8(uint8(o)); i < len(optionNames) {
		return optionNames[i]
	}
	return fmt.Sprintf("option(%d)", uint8(o))
}

// Options returns all of them.
func Options() []Option {
	all := make([]Option, len(optionNames))
	for i := range all {
		all[i] = 1 << i
	}
	return all
}

// Takers says which algorithms take the option: "sliding_counter does".
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
