package main

import (
	"sync"
	"time"
)

// What follows is how articles write the algorithms: one key, a mutex, wall
// time, floating point where it is handy. Each holds to a limit that is never
// reached, as its row in kindRows does. They are what a reader would otherwise
// write, not examples to follow: see docs/LIMITS.md for how each goes wrong.

const naiveLimit = 1_000_000_000

func naiveTokenBucket() func() bool {
	var (
		mu     sync.Mutex
		tokens = float64(naiveLimit)
		last   = time.Now()
	)
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		tokens = min(tokens+now.Sub(last).Seconds()*naiveLimit, naiveLimit)
		last = now
		if tokens < 1 {
			return false
		}
		tokens--
		return true
	}
}

func naiveQueue() func() bool {
	var (
		mu   sync.Mutex
		next = time.Now()
	)
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if next.Before(now) {
			next = now
		}
		if next.Sub(now) > time.Second {
			return false
		}
		next = next.Add(time.Second / naiveLimit)
		return true
	}
}

func naiveFixedWindow() func() bool {
	var (
		mu    sync.Mutex
		begin = time.Now()
		used  int
	)
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if now.Sub(begin) >= time.Second {
			begin, used = now, 0
		}
		if used >= naiveLimit {
			return false
		}
		used++
		return true
	}
}

func naiveLog() func() bool {
	const limit, window = 2000, 10 * time.Microsecond
	var (
		mu  sync.Mutex
		log []time.Time
	)
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		old := 0
		for old < len(log) && now.Sub(log[old]) >= window {
			old++
		}
		log = log[old:]
		if len(log) >= limit {
			return false
		}
		log = append(log, now)
		return true
	}
}

func naiveCounter() func() bool {
	var (
		mu            sync.Mutex
		window        = time.Now().Truncate(time.Second)
		current, prev float64
	)
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if passed := now.Sub(window); passed >= time.Second {
			prev = 0
			if passed < 2*time.Second {
				prev = current
			}
			window, current = now.Truncate(time.Second), 0
		}
		share := 1 - now.Sub(window).Seconds()
		if current+prev*share+1 > naiveLimit {
			return false
		}
		current++
		return true
	}
}

func naiveParts() func() bool {
	const parts = 10
	var (
		mu     sync.Mutex
		counts [parts]int
		newest = time.Now().UnixNano() / int64(time.Second/parts)
	)
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		part := time.Now().UnixNano() / int64(time.Second/parts)
		for ; newest < part; newest++ {
			counts[(newest+1)%parts] = 0
		}
		sum := 0
		for _, n := range counts {
			sum += n
		}
		if sum >= naiveLimit {
			return false
		}
		counts[part%parts]++
		return true
	}
}
