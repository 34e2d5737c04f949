package stint

import "fmt"

// A Kind is the algorithm of a limit. docs/LIMITS.md explains each for someone
// who has never met it; docs/SEMANTICS.md says exactly what each admits.
type Kind uint8

const (
	// GCRA is the token bucket that fills little by little, the leaky bucket
	// used as a meter and the generic cell rate algorithm: one arithmetic by
	// three names. It admits bursts up to the burst and never more than
	// burst + d/T in any stretch d, T being the time that one unit takes.
	GCRA Kind = iota
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
	// SlidingBuckets cuts the window into equal parts and counts in each.
	SlidingBuckets

	kinds = iota
)

var kindNames = [kinds]string{
	"gcra", "token_bucket_interval", "leaky_queue", "fixed_window",
	"sliding_log", "sliding_counter", "sliding_buckets",
}

// kindAliases are further names that text may use.
var kindAliases = map[string]Kind{"token_bucket": GCRA, "leaky_bucket": GCRA}

// String returns the name that limits as text use: "gcra", "leaky_queue", ….
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

func parseKind(word string) (Kind, bool) {
	if k, ok := kindAliases[word]; ok {
		return k, true
	}
	for k, name := range kindNames {
		if name == word {
			return Kind(k), true
		}
	}
	return 0, false
}

// hasBurst reports whether limits of the kind hold a burst.
func (k Kind) hasBurst() bool {
	return k == GCRA || k == TokenBucketInterval || k == LeakyQueue
}

// countsDenied reports whether limits of the kind can count what they deny.
func (k Kind) countsDenied() bool {
	return k == FixedWindow || k == SlidingLog || k == SlidingCounter || k == SlidingBuckets
}

// aligned reports whether the kind needs the time of day: its windows begin at
// multiples of the period since the Unix epoch.
func (k Kind) aligned() bool {
	return k == TokenBucketInterval || k == FixedWindow || k == SlidingCounter || k == SlidingBuckets
}
