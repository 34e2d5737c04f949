// Package meter is what a store is written with: the arithmetic of limits, and
// the names of their algorithms and operations. Programs that limit something
// want package stint, which stands on it, and need from here an [Algorithm] at
// most.
//
// A [Meter] is made from a [Spec], which stint.Limit.Meter does. It is pure: time
// is an argument, and state is a slice of words that the caller keeps and locks.
// So a store decides in three steps, for each limit of a request: [Meter.Admits]
// says whether it passes; where all do, [Meter.Charge]; and [Meter.Answer]
// describes the state. [Meter.Take] is the three in one. [Reservations] are beside
// the state of a key while charges are open that may be settled at less.
//
// It imports nothing of the limiter, and no clock, lock or context.
package meter
