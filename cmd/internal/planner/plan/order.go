package plan

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// An event is a request on its way to those who count.
type event struct {
	at   int64 // nanoseconds since the epoch
	cost int64
	id   uint32 // of the client
	out  bool   // the client is left out
}

// order puts events back in order of time, those of one moment in the order in
// which they came. What is late by no more than the window finds its place; what
// is later is astray: then a sorter must do it.
type order struct {
	window int64

	sorted []event // from head on: in order
	head   int
	late   []event // came after one of sorted that is later
	newest int64
	given  int64 // the time of the last that was given out

	out       []event
	reordered int64 // found their place again
	astray    bool  // one was too late
}

func newOrder(window int64) *order {
	return &order{window: window, newest: math.MinInt64, given: math.MinInt64}
}

func (o *order) add(e event) {
	if e.at >= o.newest {
		o.newest = e.at
		o.sorted = append(o.sorted, e)
		return
	}
	o.reordered++
	o.astray = o.astray || e.at < o.given
	o.late = append(o.late, e)
}

// take returns the events that nothing within the window can come before. They
// are valid until the next call.
func (o *order) take() []event { return o.until(o.newest - o.window) }

// rest returns all that is left.
func (o *order) rest() []event { return o.until(math.MaxInt64) }

func (o *order) until(bound int64) []event {
	o.compact()
	ready := o.sorted[o.head:]
	n := sort.Search(len(ready), func(i int) bool { return ready[i].at > bound })
	ready = ready[:n]
	o.head += n
	if len(o.late) > 0 {
		ready = o.merge(ready, bound)
	}
	if len(ready) > 0 {
		o.given = ready[len(ready)-1].at
	}
	return ready
}

// compact moves what is left to the front once that is the smaller part.
func (o *order) compact() {
	if rest := o.sorted[o.head:]; o.head > 0 && len(rest) <= o.head {
		n := copy(o.sorted, rest)
		o.sorted, o.head = o.sorted[:n], 0
	}
}

// merge adds the late up to bound. Of one moment, those in order came first:
// they are not added once a later one is there.
func (o *order) merge(ready []event, bound int64) []event {
	slices.SortStableFunc(o.late, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	n := sort.Search(len(o.late), func(i int) bool { return o.late[i].at > bound })
	late := o.late[:n]
	o.out = o.out[:0]
	for len(late) > 0 && len(ready) > 0 {
		if ready[0].at <= late[0].at {
			o.out, ready = append(o.out, ready[0]), ready[1:]
		} else {
			o.out, late = append(o.out, late[0]), late[1:]
		}
	}
	o.out = append(append(o.out, ready...), late...)
	o.late = append(o.late[:0], o.late[n:]...)
	return o.out
}
