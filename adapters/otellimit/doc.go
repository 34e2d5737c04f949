// Package otellimit reports decisions to OpenTelemetry: a span and metrics for
// each request, through the SDK that the program has set up.
//
//	telemetry, err := otellimit.New(otellimit.Options{})
//	…
//	guard, err := httplimit.NewPolicy(p, client, httplimit.Options{OnDecision: telemetry.HTTP})
//
// With package grpclimit, and in programs that call a limiter or a policy
// themselves, call [Telemetry.Decided].
//
// A span is named stint.rate_limit, is a child of the request's, and lasts as
// long as the decision and the time in the wait queue. The metrics are
//
//	stint.rate_limiting.requests               {request}, by result and policy
//	stint.rate_limiting.decision.duration      s
//	stint.rate_limiting.request.time_in_queue  s, of requests that waited
//
// with the attributes stint.rate_limiting.result, which is allowed, denied,
// blocked or shadow_denied, and stint.rate_limiting.policy, the name of the rule.
// They never contain keys. OpenTelemetry has no convention for rate limits yet;
// the names follow those of ASP.NET Core, and may change when there is one.
//
// Price: a few allocations and about that of the SDK, see BenchmarkHTTP.
package otellimit
