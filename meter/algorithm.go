package meter

import "fmt"

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
	// FixedWindow counts in windows aligned to the Unix epoch, or in calendar
	// days or months. Twice the count may pass around an edge.
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
