package meter

import "time"

// An Answer is what a limit says about one key to a request of some cost. The methods that return an
// Answer return beside it whether the request passes.
type Answer struct {
	// Remaining is how many requests of cost 1 would pass at this instant.
	Remaining int64
	// RetryAfter is 0 when the request passes. Otherwise it is the least wait after which the same
	// cost passes if nothing else arrives, or [Never].
	RetryAfter time.Duration
	// ResetAfter is the wait until the key is as if it had never been seen.
	ResetAfter time.Duration
	// Delay is how long a request that passed waits before it starts. Only a [LeakyQueue] delays.
	Delay time.Duration

	// An answer of four words is returned in registers. A fifth field would cost a copy.
}

// Never is the wait for a cost that can never pass because it is above the limit.
const Never time.Duration = -1
