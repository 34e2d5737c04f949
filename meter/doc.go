// Package meter is for those who write a store: it has the arithmetic of limits, and the names of
// algorithms and operations. Programs that limit something use package stint, which is built on
// this one; all that they need from here is an [Algorithm].
//
// The method Meter of stint.Limit makes a [Meter] from a [Spec]. A Meter is pure: time is an argument, and state
// is a slice of words that the caller keeps and locks. A store decides in three steps, for each
// limit of a request: [Meter.Admits] says whether the request passes; where all limits let it pass,
// [Meter.Charge] charges it; and [Meter.Answer] describes the state. [Meter.Take] does all three.
// While charges are open that may be settled at less, the store keeps [Reservations] beside the
// state of the key.
//
// The package imports nothing of the limiter, and no clock, lock or context.
package meter
