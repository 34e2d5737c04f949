package meter_test

import (
	"fmt"
	"log"
	"time"

	"github.com/stint-dev/stint/meter"
)

// The example of README.md, which TestDocsPackages holds to this one.
func Example() {
	m, err := meter.New(meter.Spec{Count: 6, Period: time.Minute, Burst: 3, BurstSet: true})
	if err != nil {
		log.Fatal(err)
	}
	state := make([]uint64, m.Words()) // one word; zero is a key never seen
	for _, at := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 10 * time.Second} {
		answer, ok := m.Take(state, int64(at), 1)
		fmt.Println(at, ok, "TAT", time.Duration(state[0]), "remaining", answer.Remaining, "retry after", answer.RetryAfter)
	}
	// Output:
	// 0s true TAT 10s remaining 2 retry after 0s
	// 1s true TAT 20s remaining 1 retry after 0s
	// 2s true TAT 30s remaining 0 retry after 0s
	// 3s false TAT 30s remaining 0 retry after 7s
	// 10s true TAT 40s remaining 0 retry after 0s
}
