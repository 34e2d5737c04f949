// Package otellimit tells OpenTelemetry of decisions: a span and metrics for
// each request, through whichever SDK the program has set up.
//
//	telemetry, err := otellimit.New(otellimit.Options{})
//	…
//	guard, err := httplimit.NewPolicy(p, client, httplimit.Options{OnDecision: telemetry.HTTP})
//
// Package grpclimit, and whoever asks a limiter or a policy itself, call
// [Telemetry.Decided].
//
// A span is named stint.rate_limit, is a child of the request's, and lasts as
// long as the decision and the wait for its turn. The metrics are
//
//	stint.rate_limiting.requests               {request}, by result and policy
//	stint.rate_limiting.decision.duration      s
//	stint.rate_limiting.request.time_in_queue  s, of requests that waited
//
// with the attributes stint.rate_limiting.result, which is allowed, denied,
// blocked or shadow_denied, and stint.rate_limiting.policy, the name of the rule.
// Keys are in none of them. OpenTelemetry has no convention for rate limits yet;
// the names follow those of ASP.NET Core, and may change when there is one.
//
// Price: a few allocations and about that of the SDK, see BenchmarkHTTP.
package otellimit
