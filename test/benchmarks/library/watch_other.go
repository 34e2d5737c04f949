//go:build !linux

package library

import "time"

// look returns nothing: how long a thread waited for a processor is only known
// on Linux, and elsewhere such waits are part of what is timed.
func look() turn { return turn{} }

// processorTime returns 0: it is only known on Linux.
func processorTime() time.Duration { return 0 }

// processorTimeOf returns 0: it is only known on Linux.
func processorTimeOf(int) time.Duration { return 0 }
