//go:build !linux

package proxy

import (
	"net"
	"time"
)

// sinceData returns nil: the system does not say how long ago a byte came.
func sinceData(net.Conn) func() (time.Duration, bool) { return nil }

// acknowledged returns nil: the system does not say what the other side has.
func acknowledged(net.Conn) func() (int64, bool) { return nil }

// hungUp returns nil: the system does not say whether the other side has ended a connection.
func hungUp(net.Conn) func() (bool, bool) { return nil }
