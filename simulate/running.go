package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/stint-dev/stint"
)

// Running are the requests in flight of a simulation, in the order in which they end by
// its clock. The default value has none.
type Running []running

type running struct {
	until int64
	end   func()
}

// Add has a request end at a moment.
func (r *Running) Add(until int64, end func()) {
	at := sort.Search(len(*r), func(i int) bool { return (*r)[i].until > until })
	*r = slices.Insert(*r, at, running{until, end})
}

// End ends the requests that are over.
func (r *Running) End(now int64) {
	over := 0
	for ; over < len(*r) && (*r)[over].until <= now; over++ {
		(*r)[over].end()
	}
	clear((*r)[:over])
	*r = (*r)[over:]
}

// fly makes limits the layers of all lines that bring none, of which one or more are in
// flight: a limiter takes the places, and gives them back.
func (r *Runner) fly(limits []stint.Limit, texts []string) (err error) {
	if r.limiter, err = stint.NewLimiter(r.store, "limits", limits...); err == nil {
		r.texts = texts
	}
	return err
}

// acquire decides a take under limits in flight.
func (r *Runner) acquire(op Op) (stint.Decision, error) {
	switch {
	case op.NoKey:
		return stint.Decision{}, errNoKey
	case op.Verb != "" && op.Verb != Take:
		return stint.Decision{}, fmt.Errorf("op %q: under a limit in flight, write takes, with how long each \"lasts\"", op.Verb)
	}
	d, end, err := r.limiter.AcquireN(context.Background(), op.Key, op.Cost, 0)
	if err == nil && d.Allowed {
		r.running.Add(later(later(r.clock.Now(), int64(d.Delay)), int64(op.Lasts)), end)
	}
	return d, err
}

// later adds to a moment without wrapping.
func later(at, by int64) int64 {
	if sum := at + by; sum >= at {
		return sum
	}
	return 1<<63 - 1
}

var errKinds = errors.New("change: limits in flight are there from the first line on, or not at all")

// lasts reads how long a request is in flight.
func lasts(text string) (time.Duration, error) {
	ns, err := parseDuration(text)
	if err == nil && ns < 0 {
		err = fmt.Errorf("%s is below zero", text)
	}
	return time.Duration(ns), err
}
