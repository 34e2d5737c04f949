package redisstore_test

import (
	"testing"

	"github.com/stint-dev/stint/redisstore/internal/faulttest"
)

// TestUnserved has nobody serve a slot of a cluster.
func TestUnserved(t *testing.T) {
	t.Parallel() // it waits more than it works
	faulttest.Unserved(t, byURL)
}
