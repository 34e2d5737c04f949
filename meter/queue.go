package meter

import "time"

// The queue is a bucket with room for one more request, the one that starts, and with a delay: a
// request that passes starts once all before it have started. It then keeps its delay, so a
// reservation gives units back only while no request is behind it.

var queueKind = kind{
	name: "leaky_queue", options: Burst | Debt,
	evenly: true, queues: true, of: newBucket,
}

// Delay returns how long a request that passes now waits before it starts. Only a [LeakyQueue]
// delays.
func (m *Meter) Delay(state []uint64, now, cost int64) time.Duration {
	if !m.queues || cost <= 0 {
		return 0
	}
	b := (*bucket)(m)
	return b.nanoseconds(b.backlog(state, since(now)))
}
