package faulttest

import (
	"sync/atomic"
	"time"
)

// A Longest is the longest of some durations, which many goroutines may note.
type Longest struct{ ns atomic.Int64 }

// Note counts a duration in.
func (l *Longest) Note(d time.Duration) {
	for most := l.ns.Load(); int64(d) > most && !l.ns.CompareAndSwap(most, int64(d)); most = l.ns.Load() {
	}
}

// Load returns the longest so far.
func (l *Longest) Load() time.Duration { return time.Duration(l.ns.Load()) }
