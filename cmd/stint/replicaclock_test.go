package main_test

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// anHourAhead returns the port of a link to a server, whose clock seems to be an hour ahead.
func anHourAhead(t *testing.T, server string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	seconds := regexp.MustCompile(`\*2\r\n\$10\r\n(\d{10})\r\n`)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server)
			if err != nil {
				c.Close()
				continue
			}
			go late(s, c, 0)
			go func() {
				defer c.Close()
				for b := make([]byte, 64<<10); ; {
					n, err := s.Read(b)
					if err != nil {
						return
					}
					answer := seconds.ReplaceAllStringFunc(string(b[:n]), func(time string) string {
						is, _ := strconv.Atoi(seconds.FindStringSubmatch(time)[1])
						return strings.Replace(time, strconv.Itoa(is), strconv.Itoa(is+3600), 1)
					})
					if _, err := c.Write([]byte(answer)); err != nil {
						return
					}
				}
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// TestCheckStoreReplicas checks a master with two replicas, the clock of one of which is
// an hour ahead: after a failover that is the limits' clock.
func TestCheckStoreReplicas(t *testing.T) {
	master := startRedis(t, "", "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(master.address)
	good, ahead := startRedis(t, "", "--replicaof", host+" "+port), startRedis(t, "")
	for _, command := range []string{"CONFIG SET replica-announce-ip 127.0.0.1", "CONFIG SET replica-announce-port " + anHourAhead(t, ahead.address), "REPLICAOF " + host + " " + port} {
		if answer, err := ahead.command(command); err != nil || answer != "+OK" {
			t.Fatal(command, answer, err)
		}
	}
	for n := ""; n != ":2"; time.Sleep(20 * time.Millisecond) { // or the test's deadline
		n, _ = master.command(`EVAL "return tonumber(string.match(redis.call('INFO','replication'), 'connected_slaves:(%d+)'))" 0`)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), self, "doctor", "--limit", "1/h", "--http", "127.0.0.1:0", "--store", "redis://"+master.address)
	check.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
	out, err := check.CombinedOutput()
	text := strings.Join(strings.Fields(string(out)), " ")
	if err != nil || strings.Count(text, "the clock of the replica") != 1 || strings.Contains(text, "replica "+good.address) || !strings.Contains(text, "from the master's: after a failover") {
		t.Errorf("%v\n%s", err, out)
	}
}
