package observe_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/service/observe"
)

// TestWrongTokensOfMany: however many addresses try tokens, the log has few lines, which
// say of all how many there were.
func TestWrongTokensOfMany(t *testing.T) {
	var log lines
	o := observe.New(observe.Options{Log: log.logger(), Period: time.Hour})
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			for _, peer := range []string{fmt.Sprintf("[2001:db8::%x]:443", i), fmt.Sprintf("[2001:db8::%x]:444", i)} {
				o.WrongToken(observe.GRPC, peer)
			}
		})
	}
	all.Wait()
	o.WrongToken(observe.HTTP, "@")
	o.Close()
	first, again, times, said := 0, 0, 0, log.take()
	for _, line := range said {
		if strings.Contains(line, `msg="wrong token"`) {
			first++
			continue
		}
		n := 0
		if _, err := fmt.Sscanf(line[strings.Index(line, "times="):], "times=%d", &n); err != nil {
			t.Fatal(line, err)
		}
		again, times = again+1, times+n
	}
	if first != 18 || again > 17 || first+times != 2001 { // 16 addresses, and the others of each interface
		t.Errorf("%d lines, %d sums of %d:\n%s", first, again, times, strings.Join(said, "\n"))
	}
}
