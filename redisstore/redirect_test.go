package redisstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestClusterKnownLate has nodes that do not tell at first who serves what: what looks like
// one server is known for a cluster when they do.
func TestClusterKnownLate(t *testing.T) {
	need.Time(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	tell := func(sign string) {
		for _, node := range c.Nodes {
			node.CLI(t, "acl", "setuser", "default", sign+"cluster|slots")
		}
	}
	tell("-")
	store := open(t, c.Nodes[0].URL(), redisstore.Options{})
	limit := bind(t, store, "1000/1000h")
	decided := func() (n int) {
		for i := range 30 {
			_, err := limit.Decide(ctx, meter.OpTake, fmt.Sprint("key", i), 1)
			if err == nil {
				n++
			} else if !errors.Is(err, redisstore.ErrNotExecuted) {
				t.Errorf("told %v", err)
			}
		}
		return n
	}
	if n := decided(); n == 0 || n == 30 {
		t.Fatalf("%d of 30 keys are at the one node that is known", n)
	}
	tell("+")
	eventually(t, "the store does not take it for a cluster", func() bool { return decided() == 30 })
}

// TestSlotsOutOfRange has a cluster say slots that there are not.
func TestSlotsOutOfRange(t *testing.T) {
	for text, want := range map[string]bool{
		":0\r\n:16383": true, ":0\r\n:16384": false, ":0\r\n:81919": false, ":65536\r\n:65540": false, ":-1\r\n:5": false, ":7\r\n:6": false, ":7\r\n:7": true,
	} {
		at := impostor(t, "CLUSTER", "*1\r\n*3\r\n"+text+"\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$1\r\na\r\n")
		c := redis.NewClient(&redis.Options{Addr: at})
		all, err := redisstore.NewDriver(c).(redisstore.Topology).Slots(ctx)
		c.Close()
		if (err == nil) != want || want != (len(all) == 1) {
			t.Errorf("%q: %v, %v", text, all, err)
		}
	}
}

// TestRedirects has the nodes of a cluster send a call to each other without end: it is
// sent on three times, and was not executed.
func TestRedirects(t *testing.T) {
	all := farNodes(t)
	for _, f := range all {
		f.does.Store(farRedirects)
	}
	store := openPlain(t, redisstore.Options{URL: fmt.Sprint("redis://", all[0].addr, ",", all[1].addr), Timeout: within})
	_, err := bind(t, store, short).Decide(ctx, meter.OpTake, "call-1", 1)
	if n := all[0].arrived["call-1"] + all[1].arrived["call-1"]; n != 1+3 || !errors.Is(err, redisstore.ErrNotExecuted) {
		t.Errorf("it came %d times: %v", n, err)
	}
	shows(t, "redirections of a call, in a cluster", "3")
}
