package main

import (
	"math/rand/v2"
	"time"
)

// words are those of a line of memory.
const words = 8

// line returns how long the processor waits for one of some lines at random, out of
// as many bytes as the table of overrides takes: a lookup reads one, so it takes no
// less, whatever the table is.
func line(bytes int64, some int) time.Duration {
	memory := make([]uint64, bytes/8)
	some = min(some, len(memory)/words)
	for i := 0; i < len(memory); i += words {
		memory[i] = 1 // else all of it is one page of zeros
	}
	order := rand.Perm(len(memory) / words)[:some]
	for i, at := range order { // each line says which is the next
		memory[at*words] = uint64(order[(i+1)%some] * words)
	}
	best, at := time.Duration(1<<62), uint64(order[0]*words)
	for range 12 << 16 / some {
		begun := time.Now()
		for range some {
			at = memory[at]
		}
		best = min(best, time.Since(begun)/time.Duration(some)) // never the first time
	}
	if at >= uint64(len(memory)) { // so that the reading is not left out
		panic("a line that is not there")
	}
	return best
}
