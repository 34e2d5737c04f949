package meter

// An Op is an operation that a request asks of a store.
type Op uint8

const (
	// OpTake charges the whole cost if all of it may pass.
	OpTake Op = iota
	// OpPeek says whether a take would pass, and changes nothing.
	OpPeek
	// OpTakeUpTo charges the most that may pass now, at most the cost.
	OpTakeUpTo
)
