package main_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestServeSentinelQuiet kills the master that three Sentinels watch, which has nobody to
// promote. What an idle process does meanwhile, a thousand do to those that elect: the
// bounds are far from what it does, and farther from the retry loops that beget others.
func TestServeSentinelQuiet(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	master := startRedis(t, "")
	var sentinels []*redisServer
	for range 3 {
		sentinels = append(sentinels, startSentinel(t, master, 2))
	}
	s := startServe(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", "rules: [{name: a, key: [ip], limits: 10/h}]\n"), "--http", "127.0.0.1:0",
		"--store", fmt.Sprintf("redis://%s?master_set=main&addr=%s&addr=%s", sentinels[0].address, sentinels[1].address, sentinels[2].address))
	if status, answer := s.ask("/v1/check", `{"attributes":{"ip":"192.0.2.1"}}`, ""); status != 200 {
		t.Fatal(status, answer)
	}
	master.Kill()
	connections, used := accepted(t, sentinels), processorTime(t, s.process.Process.Pid)
	const lasts = 10 * time.Second
	time.Sleep(lasts) // what happens meanwhile is what is looked at
	connections, used = accepted(t, sentinels)-connections, processorTime(t, s.process.Process.Pid)-used
	t.Logf("in %v: %d connections to the Sentinels, %v of a processor", lasts, connections, used)
	if connections > 60 {
		t.Errorf("%d connections to the Sentinels in %v, want 60 at most", connections, lasts)
	}
	if used > 2*time.Second { // 0.5 s of a processor, and four times that with the race detector
		t.Errorf("%v of a processor in %v", used, lasts)
	}
}

// accepted returns how many connections servers have accepted, but for those of the tests
// and of the other Sentinels.
func accepted(t *testing.T, servers []*redisServer) (n int) {
	t.Helper()
	for _, s := range servers {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprint(c, "INFO stats\r\n")
		line, found := "", false
		for lines := bufio.NewScanner(c); !found && lines.Scan(); {
			line, found = strings.CutPrefix(lines.Text(), "total_connections_received:")
		}
		_ = c.Close() // all is read
		count, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		n += count - 1 // this one
	}
	return n
}

// processorTime returns how much processor time a process has used.
func processorTime(t *testing.T, pid int) (used time.Duration) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	for _, field := range strings.Fields(rest)[11:13] { // utime and stime, in hundredths of a second
		ticks, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used
}
