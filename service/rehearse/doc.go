// Package rehearse says what other rules would have done to requests that came: it
// keeps the last requests that were decided on, or takes those of a log, runs the
// rules in force and the others over them side by side, and compares whom they deny.
//
//	recorder := rehearse.NewRecorder(rehearse.RecorderOptions{})
//	p, err := policy.New(store, rules, policy.Options{OnDecision: recorder.Decided})
//	…
//	report, err := rehearse.Run(ctx, rehearse.Options{Live: p, After: other, Recording: recorder.Recording(time.Now())})
//
// Both sides are decided by package policy, on stores in memory with a clock that
// goes by the times of the requests. They begin with what keys had used at a
// checkpoint; without one with nothing used, and the first requests, which fill
// the stores, are left out of the counts.
//
// # What is kept
//
// Of a request, when it came, what its caller said it costs, whether it passed, and
// the attributes that the rules look at. Values are kept in clear, since other rules
// may look at any part of them; they stay in the memory of this process. Long ones are
// cut, with a hash of the whole behind. Memory and number of requests are bounded
// whatever clients send, see [RecorderOptions]: the oldest make room. A recording does
// not change once it is returned.
//
// # Price
//
// A few hundred nanoseconds a request, one lock of a stripe, and one allocation, of a
// segment, for a few thousand requests. A Recorder may be used from many goroutines at
// once, and starts none.
package rehearse
