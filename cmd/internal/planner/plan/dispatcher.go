package plan

import (
	"sync"
	"sync/atomic"
)

// A dispatcher hands events to sinks, to each in order, beside the goroutine that has
// them: a goroutine that has time calls a sink that no other one is calling. So no
// core waits while there is work, and none has to be woken for each few hundred
// events, which on a quiet virtual machine takes longer than to decide them.
type dispatcher struct {
	outlets []*outlet
	free    chan *eventBatch
	bell    chan struct{} // rung for those who wait
}

// An outlet is one sink, and the events that wait for it.
type outlet struct {
	sink
	whole   bool       // it receives those left out as well
	mu      sync.Mutex // held by the caller of the sink
	pending chan *eventBatch
}

// An eventBatch is events that go to all sinks.
type eventBatch struct {
	all, counted []event
	some         []event      // the memory of counted where that is not all
	open         atomic.Int32 // sinks that have not had them
}

// maxPending is how many batches may wait.
const maxPending = 8

func newDispatcher(whole, counted []sink) *dispatcher {
	t := &dispatcher{free: make(chan *eventBatch, maxPending)}
	for _, s := range whole {
		t.outlets = append(t.outlets, &outlet{sink: s, whole: true, pending: make(chan *eventBatch, maxPending)})
	}
	for _, s := range counted {
		t.outlets = append(t.outlets, &outlet{sink: s, pending: make(chan *eventBatch, maxPending)})
	}
	t.bell = make(chan struct{}, len(t.outlets))
	for range maxPending {
		t.free <- new(eventBatch)
	}
	return t
}

// send takes events, which are copied: all, and those of clients that are not left
// out. When too much waits, it calls sinks itself.
func (t *dispatcher) send(all, counted []event) {
	if len(t.free) == 0 {
		t.callSinks()
	}
	n := <-t.free
	n.all = append(n.all[:0], all...)
	if n.counted = n.all; len(counted) < len(all) {
		n.some = append(n.some[:0], counted...)
		n.counted = n.some
	}
	n.open.Store(int32(len(t.outlets)))
	for _, d := range t.outlets {
		d.pending <- n
		select {
		case t.bell <- struct{}{}:
		default:
		}
	}
}

// callSinks hands the sinks the batches that wait. If another goroutine is calling a
// sink already, that one looks again.
func (t *dispatcher) callSinks() {
	for _, d := range t.outlets {
		for len(d.pending) > 0 && d.mu.TryLock() {
			t.drain(d)
			d.mu.Unlock()
		}
	}
}

// finish hands the sinks all batches that wait.
func (t *dispatcher) finish() {
	t.callSinks()
	for _, d := range t.outlets {
		d.mu.Lock()
		t.drain(d)
		d.mu.Unlock()
	}
}

// drain hands a sink the batches that wait for it; its mutex is held.
func (t *dispatcher) drain(d *outlet) {
	for {
		select {
		case n := <-d.pending:
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
