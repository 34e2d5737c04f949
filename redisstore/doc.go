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
// Guarantees: a request takes at most one script call, whatever its layers: it reads,
// decides, and writes all or nothing. Requests that come while two calls are on their way
// may share a call; each is decided by itself. Time is the server's TIME, read once a call,
// in microseconds: a decision is made at the microsecond that has begun, and waits are
// rounded up. At that time the answers are those of docs/SEMANTICS.md, bit for bit: all
// numbers in the script are exact. A denial writes nothing, unless the limit
// has count_denied or a ban, or has changed. A call that may have run is never sent again, so a request is charged at
// most once; the errors say what is known ([ErrNotExecuted], [ErrAmbiguous],
// [ErrConfiguration]).
//
// Price: a round trip, and in Redis a short string for each key, and for a log about 4
// bytes an entry. A long log that is the only limit of a request is read and written in
// part, else whole. Keys expire once they are as if never seen: expiry frees memory, and
// never changes a decision.
//
// Bounds: the script computes in doubles, so Bind refuses a limit whose computation may
// exceed 2^53, and a [meter.SlidingLog] of more than Options.MaxLog units;
// docs/REDIS-REFERENCE.md says which. All other limits are exact.
//
// A state begins with the parameters of the limit that it was written under. When a limit
// changes, states go on as docs/SEMANTICS.md says of changes.
//
// In a cluster, a request whose layers are on several nodes first peeks at all of them,
// then charges each, and gives its charges back if another request was faster on a node.
// It is not decided at one instant, but never lets through more than a single call would.
//
// While a server does not answer, calls fail at once ([ErrUnavailable]), and the
// store probes the server in the background. New does not need it to run. Package
// fallback decides in the meantime, with this process's share of a limit;
// [Store.CountNodes] counts the processes that share it.
//
// A store creates as many new keys as the server has room for, or Options.NewKeys a
// second. Further new keys share overflow keys, so that a flood of keys cannot fill the
// server. Only these are not exact: they may be denied for what others used, and may get
// twice their limit, once on an overflow key and once on their own. Existing keys are
// decided as ever.
//
// State that replication or eviction loses is lost: run Redis with maxmemory-policy
// noeviction.
//
// [Store.Mode] is for limits that must not call the server for each request: leased
// for hot keys, synchronised now and then, or divided; see [Mode].
//
// A Store may be used from many goroutines at once.
package redisstore
