package lab

import "time"

// SetPatience says how long a simulation may take, and how long a log waits.
func SetPatience(d time.Duration) { patience, turnPatience = d, d }

// HoldTurn takes the turn of a planner, as a log does that is read, until release is called.
func HoldTurn(p *Planner) (release func()) {
	p.turn <- struct{}{}
	return func() { <-p.turn }
}
