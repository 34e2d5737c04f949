//go:build !linux

package proxy

import (
	"net"
	"time"
)

// sinceData returns nil: the system does not say how long ago a byte came.
func sinceData(net.Conn) func() (time.Duration, bool) { return nil }
