package plan

import (
	"sync"
	"sync/atomic"
)

// A teller hands events to sinks, to each in order, beside the goroutine that has
// them: whoever has time calls a sink that nobody else does. So no core waits
// while there is work, and none has to be woken for each few hundred events,
// which on a quiet virtual machine takes longer than to decide them.
type teller struct {
	desks []*desk
	free  chan *news
	bell  chan struct{} // rung for those who wait
}

// A desk is one sink, and what it is to be told.
type desk struct {
	sink
	whole bool       // it receives those left out as well
	mu    sync.Mutex // held by whoever calls the sink
	full  chan *news
}

// News are events that all sinks are told.
type news struct {
	all, counted []event
	some         []event      // the memory of counted where that is not all
	open         atomic.Int32 // sinks that have not been told
}

// untold is how many news may wait.
const untold = 8

func newTeller(whole, counted []sink) *teller {
	t := &teller{free: make(chan *news, untold)}
	for _, s := range whole {
		t.desks = append(t.desks, &desk{sink: s, whole: true, full: make(chan *news, untold)})
	}
	for _, s := range counted {
		t.desks = append(t.desks, &desk{sink: s, full: make(chan *news, untold)})
	}
	t.bell = make(chan struct{}, len(t.desks))
	for range untold {
		t.free <- new(news)
	}
	return t
}

// send takes events, which are copied: all, and those of clients that are not left
// out. When too much waits, it calls sinks itself.
func (t *teller) send(all, counted []event) {
	if len(t.free) == 0 {
		t.help()
	}
	n := <-t.free
	n.all = append(n.all[:0], all...)
	if n.counted = n.all; len(counted) < len(all) {
		n.some = append(n.some[:0], counted...)
		n.counted = n.some
	}
	n.open.Store(int32(len(t.desks)))
	for _, d := range t.desks {
		d.full <- n
		select {
		case t.bell <- struct{}{}:
		default:
		}
	}
}

// help tells the sinks what waits. Where somebody does already, that one looks
// again.
func (t *teller) help() {
	for _, d := range t.desks {
		for len(d.full) > 0 && d.mu.TryLock() {
			t.drain(d)
			d.mu.Unlock()
		}
	}
}

// finish tells the sinks all that waits.
func (t *teller) finish() {
	t.help()
	for _, d := range t.desks {
		d.mu.Lock()
		t.drain(d)
		d.mu.Unlock()
	}
}

// drain tells a sink what waits for it; its mutex is held.
func (t *teller) drain(d *desk) {
	for {
		select {
		case n := <-d.full:
			events := n.counted
			if d.whole {
				events = n.all
			}
			if len(events) > 0 {
				d.add(events)
			}
			if n.open.Add(-1) == 0 {
				t.free <- n
			}
		default:
			return
		}
	}
}
