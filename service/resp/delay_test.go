package resp_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stint-dev/stint/service/resp"
)

// TestDelay says how long a caller of a leaky_queue must wait; without that it
// cannot keep the pace.
func TestDelay(t *testing.T) {
	address, _ := start(t, resp.Options{})
	got := talk(t, address, "STINT.CHECK path /queue ip 192.0.2.7\r\nSTINT.CHECK path /queue ip 192.0.2.7\r\nSTINT.RESERVE path /queue ip 192.0.2.7\r\nQUIT\r\n")
	all := regexp.MustCompile(`delay_ms\r\n:(\d+)\r\n`).FindAllStringSubmatch(got, -1)
	if len(all) != 2 { // the first starts at once
		t.Fatalf("%d delays: %q", len(all), got)
	}
	const hour = 3_600_000
	for i, m := range all {
		if ms, _ := strconv.Atoi(m[1]); ms > (i+1)*hour || ms < (i+1)*hour-hour/2 {
			t.Errorf("delay %d is %d ms, want %d h", i, ms, i+1)
		}
	}
}
