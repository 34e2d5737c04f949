// Package benchmarks measures stint beside other limiters, and beside what none can go
// below: in memory (BenchmarkKeys, …Others, …Single, …Bytes, …Flood), in front of HTTP
// (…Middleware, …Check, …Proxy, …Streams), and in Redis (…Redis, …Cluster). make bench and
// make bench-redis run them several times and print the medians.
//
// Run them on a machine that does nothing else: whatever else runs is part of a figure.
package benchmarks
