// Package record keeps the last requests that were decided on, so that other
// rules can be tried on them.
//
//	recorder := record.New(record.Options{})
//	p, err := policy.New(store, rules, policy.Options{OnDecision: recorder.Decided})
//	…
//	recording := recorder.Recording(time.Now())
//
// Of a request it keeps when it came, what its caller said it costs, whether it
// passed, and the attributes that the rules look at. Values are kept in clear,
// since other rules may look at any part of them; they stay in the memory of
// this process. Long ones are cut, with a hash of the whole behind.
//
// # Guarantees
//
// Memory and number of requests are bounded whatever clients send, see
// [Options]: the oldest make room. A recording does not change once it is had.
//
// # Price
//
// A few hundred nanoseconds a request, one lock of a stripe, and no allocation
// but of a segment for each few thousand requests. A Recorder may be used from
// many goroutines at once, and has none.
package record
