package meter

import "time"

// The queue is a bucket with room for one more, the one that starts, and a delay:
// what passes starts when all before it have. What has got its delay keeps it, so a
// reservation gives back only while nothing is behind it.

var queueKind = kind{
	name: "leaky_queue", options: Burst | Debt,
	evenly: true, queues: true, of: newBucket,
}

// Delay returns how long a request that passes now waits before it starts: 0
// but for a [LeakyQueue].
func (m *Meter) Delay(state []uint64, now, cost int64) time.Duration {
	if !m.queues || cost <= 0 {
		return 0
	}
	b := (*bucket)(m)
	return b.nanoseconds(b.backlog(state, since(now)))
}
