package main

import (
	"os"
	"runtime"
)

// headroom is how much garbage a server may leave lying around, beside as much
// as it has live, before the collector runs. It takes memory from no other program:
// pages that are never written to are never there.
const headroom = 32 << 20

// relieveCollector keeps the collector from running for every few megabytes of
// garbage, of which each request leaves some, while little is live. It lasts
// until the function that it returns is called. It does nothing if GOGC or
// GOMEMLIMIT is set.
func relieveCollector() (end func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	ballast := make([]byte, headroom)
	return func() { runtime.KeepAlive(ballast) }
}
