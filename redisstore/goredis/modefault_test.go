package goredis_test

import (
	"testing"

	"github.com/stint-dev/stint/redisstore/internal/faulttest"
)

// TestModeFaults has servers fail under stores in modes Lease and Async: slots
// that move, a master of a cluster that is killed, and one of a Sentinel set.
// Every call is answered in time, no more passes than is said, what was let
// through is counted once, and afterwards all is as it was.
func TestModeFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel() // it waits more than it works
		faulttest.ModesCluster(t, byDriver)
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		faulttest.ModesSentinel(t, byDriver)
	})
}
