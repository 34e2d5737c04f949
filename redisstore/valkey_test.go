package redisstore_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// TestValkey runs tests of this package anew on valkey-server, in a process of
// their own, where it is on the PATH: with STINT_REDIS_SERVER=valkey-server all
// of them do.
func TestValkey(t *testing.T) {
	need.Time(t)
	if redistest.Program() != "redis-server" {
		t.Skip("the tests run on " + redistest.Program() + " already")
	}
	if _, found := need.Find("valkey-server"); !found {
		need.Optional(t, "valkey-server")
	}
	t.Parallel()
	const laws = "vectors|layers,_all_or_none|changing_a_limit|greatest_values|concurrent"
	these := []string{
		"Valkeys", "Differential", "Time", "DenialWritesNothing", "OneCall", "ScriptSentOnce",
		"Errors", "Replies", "Bytes", "AsyncWorstCase", "ModesInOneRequest", "RenewalRefused",
	}
	self := exec.Command(os.Args[0], "-test.run=^TestStore$/^("+laws+")|^Test("+strings.Join(these, "|")+")$", "-test.short", "-test.v")
	self.Env = append(os.Environ(), "STINT_REDIS_SERVER=valkey-server")
	out, err := self.CombinedOutput()
	if err != nil {
		t.Fatalf("on Valkey: %v\n%s", err, out)
	}
	for _, name := range append(these, "Store/vectors", "Store/concurrent_takes") {
		if !strings.Contains(string(out), "--- PASS: Test"+name+" ") {
			t.Errorf("Test%s did not run", name)
		}
	}
}

// TestValkeys is for TestValkey: the servers are what they should be.
func TestValkeys(t *testing.T) {
	if strings.Contains(redistest.Program(), "valkey") {
		if info := redistest.Start(t).CLI(t, "info", "server"); !strings.Contains(info, "server_name:valkey") {
			t.Errorf("the server is no Valkey:\n%s", info)
		}
	}
}
