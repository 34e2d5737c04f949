package meter

import "time"

// An Answer is what a limit says of one key to a request of some cost. Whether
// the request passes is beside it.
type Answer struct {
	// Remaining is how many requests of cost 1 would pass at this instant.
	Remaining int64
	// RetryAfter is 0 when allowed; else the least wait after which the same
	// cost passes if nothing else arrives, or [Never].
	RetryAfter time.Duration
	// ResetAfter is the wait until the key is as if never seen.
	ResetAfter time.Duration
	// Delay is how long what has passed waits before it starts; 0 but for a
	// [LeakyQueue].
	Delay time.Duration

	// With four words an answer travels in registers: add none.
}

// Never is the wait for what can never pass: a cost above the limit.
const Never time.Duration = -1
