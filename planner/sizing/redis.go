package sizing

import (
	"math"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// What Redis 7 on 64 bits adds to what a key and its value hold, with the
// allocator that it brings along. TestReal compares it with a server.
const (
	baseMemory  = 1 << 20 // of a server without keys and with few clients
	connections = 2       // of a process to a server, those of rueidis on few cores
	besides     = 200     // of what modes lease and async keep beside a state
)

// What a call costs a server, in µs, as BenchmarkCPU of redisstore and
// make bench-redis measured it on two cores of an AMD EPYC at some 2.5 GHz. Another
// machine has other figures, and about the same ratios.
const (
	callAlone    = 20 // of a call by itself: reading, waking up, answering
	callTogether = 0.5
)

// callHead is what a call has, in bytes, besides its keys and arguments.
const callHead = 71

// A price is what a limit of one algorithm takes: bytes of a state, bytes of a call
// and of its answer, and µs of the server beside callAlone or callTogether.
type price struct {
	state, sent, received int
	server                float64
}

// prices are as measured on a Redis 7.0 with keys of the length of an address.
// Numbers of many digits take some bytes more.
var prices = map[meter.Algorithm]price{
	meter.GCRA:                {27, 217, 12, 4},
	meter.LeakyQueue:          {27, 224, 12, 4},
	meter.FixedWindow:         {30, 216, 26, 14},
	meter.SlidingCounter:      {37, 219, 25, 14},
	meter.TokenBucketInterval: {40, 248, 40, 14},
	meter.SlidingSubWindows:   {36, 243, 40, 18}, // and what its parts hold
	meter.SlidingLog:          {46, 220, 38, 9},  // and its entries
}

// calendarPrice is that of a window of a calendar, whose edges go with each call.
var calendarPrice = price{35, 471, 39, 14}

// priceOf returns what a limit takes whose keys were charged so often in a period.
func priceOf(l stint.Limit, charges int64) price {
	p := prices[l.Algorithm()]
	if unit, _ := l.Calendar(); unit != "" {
		p = calendarPrice
	}
	switch l.Algorithm() {
	case meter.SlidingSubWindows:
		parts := l.Parts() + 1
		p.state += int(min(charges, parts*(1+digits(charges/parts))))
	case meter.SlidingLog:
		gap := digits(l.Period().Microseconds() / charges)
		p.state += int(charges * (4*gap + 1) / 4)
		p.server += float64(charges) / 1000
	}
	return p
}

// digits returns how many bytes the script writes a number with: it has 94 digits.
func digits(n int64) int64 {
	return int64(math.Ceil(math.Log(float64(max(n, 2))) / math.Log(94)))
}

// keyBytes returns the length of the name of a key under a rule.
func keyBytes(rule string, l stint.Limit) int { return 28 + len(rule) + len(l.Name()) }

// bytes returns what one key takes where there are that many: the name, its place in the
// table of keys and in that of expiries, the value, and its part of both tables,
// which double when they are full.
func bytes(key, value int, keys int64) int64 {
	const header, object, place, short = 4, 16, 24, 44
	sum := class(key+header) + 2*class(place)
	if value <= short {
		sum += class(object + header + value)
	} else {
		head := header
		if value > 255 {
			head += 2
		}
		sum += class(object) + class(value+head)
	}
	tables := int64(2)
	for tables < keys {
		tables *= 2
	}
	return int64(sum) + 2*8*tables/max(keys, 1)
}

// class rounds up to what the allocator hands out: multiples of 16 up to 128, and
// four sizes to each doubling beyond.
func class(n int) int {
	step := 16
	for top := 128; n > top; top *= 2 {
		step = top / 4
	}
	return (n + step - 1) / step * step
}
