// Package grpclimit holds gRPC calls to limits: incoming calls by interceptors of a server,
// outgoing calls by interceptors of a client.
//
// Most programs guard a server with a limiter and a key:
//
//	limiter, err := stint.NewLimiter(store, "api", stint.PerSecond(10).WithBurst(20))
//	…
//	guard, err := grpclimit.NewServer(limiter, grpclimit.PeerKey(), grpclimit.Options{})
//	…
//	s := grpc.NewServer(guard.Unary(), guard.Stream())
//
// or with the rules of a file, by [NewServerPolicy]. A client paces its own calls, and keeps
// to what servers ask for:
//
//	client := &grpclimit.Client{Limiter: limiter}
//	conn, err := grpc.NewClient(target, client.Unary(), client.Stream())
//
// # What clients see
//
// A call that is denied ends with ResourceExhausted before its handler runs. The details of
// the status are RetryInfo (after how long the same call passes; absent if it never passes),
// QuotaFailure (a violation for each limit that denied) and ErrorInfo (reason RATE_LIMITED,
// domain stint). Every answer has metadata, named as the header fields of package httplimit:
// ratelimit and ratelimit-policy of draft-ietf-httpapi-ratelimit-headers-11, and retry-after
// with a denial.
//
// A call ends with PermissionDenied if a block holds it or it lacks a required key, with
// InvalidArgument if it is itself at fault, and with Unavailable if no decision could be
// made.
//
// # Guarantees
//
// A call is decided about once, and charged once, before its handler runs. Rules that go by
// the response, and Options.Settle, settle that charge before the trailer is sent. A stream
// is charged when it opens, and with Options.Messages for each message that it receives.
// Health checks and reflection pass uncounted unless Skip says otherwise. Everything here may
// be used from many goroutines at once.
//
// # Price
//
// A call that passes costs a decision and 6 allocations, as BenchmarkUnary counts them, and
// unless NoFields is set its metadata. A denial also costs making its status.
package grpclimit
