// Package grpclimit holds gRPC calls to limits: those that come in, by
// interceptors of a server, and those that go out, by interceptors of a client.
//
// Most programs guard a server with a limiter and a key:
//
//	limiter, err := stint.NewLimiter(store, "api", stint.PerSecond(10).WithBurst(20))
//	…
//	guard, err := grpclimit.NewServer(limiter, grpclimit.PeerKey(), grpclimit.Options{})
//	…
//	s := grpc.NewServer(guard.Unary(), guard.Stream())
//
// or with the rules of a file, by [NewServerPolicy]. A client paces itself, and
// keeps to what servers ask for:
//
//	client := &grpclimit.Client{Limiter: limiter}
//	conn, err := grpc.NewClient(target, client.Unary(), client.Stream())
//
// # What clients see
//
// A call that is denied ends with ResourceExhausted before its handler runs.
// The status has RetryInfo (after how long the same call passes; it is not
// there for what never passes), QuotaFailure (a violation for each limit that
// denied) and ErrorInfo (reason RATE_LIMITED, domain stint). Every answer has
// metadata as the headers of HTTP have it: ratelimit and ratelimit-policy of
// draft-ietf-httpapi-ratelimit-headers-11, and retry-after with a denial.
//
// A key that is missing and may not be, and a block, end with
// PermissionDenied; a request at fault with InvalidArgument; what could not be
// decided with Unavailable.
//
// # Guarantees
//
// A call is decided about once, and charged once, before its handler runs. What rules by the
// response, and Options.Settle, make of that is settled before its trailer is sent. A
// stream is charged when it opens, and with Options.Messages for each message
// that it receives. Health checks and reflection pass uncounted unless Skip
// says otherwise. Everything here may be used from many goroutines at once.
//
// # Price
//
// A call that passes costs a decision and 6 allocations, as BenchmarkUnary
// counts them, and the metadata, unless NoFields. A denial costs its status.
package grpclimit
