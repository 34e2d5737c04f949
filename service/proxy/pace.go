package proxy

import (
	"cmp"
	"time"
)

const (
	// defaultAnswerStall is how long an answer may wait for its client to take any of it. Downloads
	// pause for longer than uploads; nginx waits as long.
	defaultAnswerStall = 60 * time.Second
	// defaultAnswerRate is the least rate of answers, in bytes a second.
	defaultAnswerRate = 500
	// paceSteps is how often a write that waits is looked at in one stall.
	paceSteps = 4
)

// A pace is the time for which a client may keep an answer waiting. It begins with one stall. Waiting
// spends time, and bytes that the client takes give time back at the least rate, up to one stall.
type pace struct {
	stall time.Duration
	rate  int64 // bytes a second
	left  time.Duration
}

// newPace returns a pace, and false if the rate is no bound.
func newPace(stall time.Duration, rate int64) (pace, bool) {
	stall, rate = cmp.Or(stall, defaultAnswerStall), cmp.Or(rate, defaultAnswerRate)
	return pace{stall: stall, rate: rate, left: stall}, rate > 0
}

// step returns how long a write may wait before it is looked at again.
func (p *pace) step() time.Duration { return p.stall / paceSteps }

// spend counts a wait, and the bytes that the client took in it. It reports whether time is left. It
// counts one step at most, since a process that was stopped has not waited for its clients.
func (p *pace) spend(waited time.Duration, taken int64) bool {
	earned := min(float64(taken)/float64(p.rate)*float64(time.Second), float64(p.stall))
	p.left = min(p.left-min(waited, p.step())+time.Duration(earned), p.stall)
	return p.left > 0
}
