package sizing

import (
	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// What the script costs a server, in µs, as BenchmarkCPU and BenchmarkFloor of
// redisstore measured it on two cores of an AMD EPYC at some 2.5 GHz. Another
// machine has other figures, and about the same ratios.
const (
	callAlone    = 20 // of a call by itself: reading, waking up, answering
	callTogether = 0.5
)

// serverTime returns µs a decision of a limit whose keys hold that many entries: as a
// call of its own, and where many share one.
func serverTime(l stint.Limit, entries int64) (alone, together float64) {
	switch l.Algorithm() {
	case meter.GCRA, meter.LeakyQueue:
		together = 4
	case meter.SlidingLog:
		together = 9 + float64(entries)/1000
	case meter.SlidingSubWindows:
		together = 18
	default:
		together = 14
	}
	return callAlone + together, callTogether + together
}
