package goredis_test

import (
	"testing"

	"github.com/stint-dev/stint/redisstore/internal/faulttest"
)

// TestUnserved has nobody serve a slot of a cluster.
func TestUnserved(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel() // it waits more than it works
	faulttest.Unserved(t, byDriver)
}

// TestFullNode has one node of a cluster run out of memory.
func TestFullNode(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	faulttest.FullNode(t, byDriver)
}

// TestKilledBetween kills a master under requests that have keys there and elsewhere.
func TestKilledBetween(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	faulttest.KilledBetween(t, byDriver)
}
