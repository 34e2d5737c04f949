//go:build !linux

package proxy

import (
	"net"
	"time"
)

// Only Linux says when a byte came, what the other side has acknowledged, and whether it hung up.

func sinceData(net.Conn) func() (time.Duration, bool) { return nil }

func acknowledged(net.Conn) func() (int64, bool) { return nil }

func hungUp(net.Conn) func() (bool, bool) { return nil }
