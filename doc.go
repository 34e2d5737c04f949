// Package stint decides whether a request may pass now: an exact rate limiter.
//
// Most programs parse a [Limit], make a [Limiter] on a store once, and ask it
// for each request:
//
//	limit, err := stint.Parse("100 per minute burst 20")
//	…
//	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "api", limit)
//	…
//	d, err := limiter.Take(ctx, clientID, 1)
//
// A denial is a [Decision] that says when to come back; an error means that
// nothing could be decided. Several limits given to one Limiter hold each key at
// once. A limit without keys is memstore.Single. Package meter is the arithmetic
// alone, for authors of a [Store].
//
// # Which method
//
//   - [Limiter.Allow]: may one unit pass? [Limiter.Take] also says what remains,
//     and when to come back; [Limiter.TakeUpTo] takes what there is, [Limiter.Peek]
//     nothing.
//   - [Limiter.Wait]: wait until it passes. A [Queue] runs work at a limit's pace.
//   - [Limiter.Reserve], [Limiter.WaitReserve]: the true cost is known later.
//   - [Limiter.Acquire]: at most so many at once, for a limit in flight;
//     [Limiter.AcquireN] waits for a place, and for a pace beside it.
//   - [All]: several keys or limiters, all of them or none.
//   - [Limiter.Block]: deny a key for a time, whatever it has used.
//   - [Limiter.With]: other limits for this caller, such as those of a plan.
//
// # Guarantees
//
// Every decision is what rational arithmetic gives: a limit holds whole
// numbers, and no rate is rounded into a state. No interleaving of callers
// admits more than the algorithm's envelope, which docs/SEMANTICS.md states for each
// [Algorithm]. A request of several layers is charged in all of them or in none, and
// a denial charges nothing, unless the limit counts what it denies. RetryAfter
// is the least wait: at its end the same cost passes, and a nanosecond earlier
// it does not, if nothing else arrives. No int64 makes a decision wrap or
// panic.
//
// # Price
//
// State is one word for a bucket whose period divides evenly by its count, two
// or three for most others, a count for each part of [SlidingSubWindows], and a
// word for each unit or charge of a [SlidingLog]. Allow and Take of a Limiter
// allocate nothing except room for new keys and growing logs. The package imports
// only the standard library. Calendar limits look for their zone in the machine's
// zone database; import time/tzdata to embed one.
//
// # Concurrency
//
// Limit, Decision and the other plain values may be copied. A Limiter, a Queue
// and every Store may be used from many goroutines at once.
//
// # Time in tests
//
// Run tests of what waits under testing/synctest: timers, deadlines and the
// clock of memstore then go together, and no test sleeps. The option Now of
// memstore moves the store's clock alone, for decisions; it does not move the
// timers of Wait and Queue.
//
// # Compatibility
//
// Before version 1.0 a minor version may change what is exported; CHANGELOG.md
// says how. The text of limits, the meaning of each algorithm and the lines of
// stint simulate are the contract of docs/SEMANTICS.md, and do not change
// without a word there.
package stint
