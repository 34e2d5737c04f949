// Package redisstore keeps the state of limits in Redis or Valkey, so that any
// number of processes share them, with the answers that package memstore gives
// in process.
//
// Most programs call [New] with the URL of their server, once, and make a
// [stint.Limiter] for each thing they limit:
//
//	store, err := redisstore.New(redisstore.Options{URL: "redis://localhost:6379"})
//	limiter, err := stint.NewLimiter(store, "api", stint.PerSecond(100))
//
// Guarantees: a request is one script call at most, whatever its layers: read,
// decide, write all or nothing. Requests that come while two calls are on their
// way may share one, each decided by itself. Time is the server's TIME, read once a
// call, and its quantum is a microsecond: a decision is made at the microsecond
// that has begun, and waits are rounded up to whole ones. At such times answers are
// those of docs/SEMANTICS.md, bit for bit: every number in the script is exact. A denial writes nothing, unless the limit counts what it
// denies. A call that may have run is never sent again, so one call is at most
// one charge; the errors say what is known ([ErrNotExecuted], [ErrAmbiguous],
// [ErrConfiguration]).
//
// Price: a round trip, and in Redis a short string a key, with about 4 bytes an
// entry for a log. A long log that is the only limit of a request is read and
// written in part, else whole. Keys expire once they are as if never seen; expiry
// collects garbage and decides nothing.
//
// Bounds: the script computes in doubles, so a limit whose numbers may not fit 2^53 is
// refused when it is bound, and so is a [meter.SlidingLog] of more than Options.MaxLog
// units; docs/REDIS-REFERENCE.md says which. All others are held exactly.
//
// A state begins with the numbers that it was written under. What becomes of it under
// other limits of the same identity is what docs/SEMANTICS.md says of changing a limit.
//
// In a cluster, a request whose layers are on several nodes first peeks at all of
// them, then charges each, and gives back its charges if another request was faster
// on one of them. It is not decided at one instant, but never lets through more than
// a single call would.
//
// While a server does not answer, calls fail at once ([ErrUnavailable]), and the
// store probes the server in the background. New does not need it to run. Package
// fallback decides in the meantime, with this process's share of a limit;
// [Store.CountNodes] counts the processes that share it.
//
// A store creates as many new keys as the server has room for, or Options.NewKeys a
// second. Newcomers beyond that share overflow keys, so that a flood cannot fill the
// server. Exactness is suspended for them alone: they may be denied for what others
// used, and may get twice their limit, once there and once under a key of their own.
// Existing keys are decided as ever.
//
// State that replication or eviction loses is lost: run Redis with maxmemory-policy
// noeviction.
//
// [Store.Mode] is for limits that must not call the server for each request: leased
// for hot keys, synchronised now and then, or divided; see [Mode].
//
// A Store may be used from many goroutines at once.
package redisstore
