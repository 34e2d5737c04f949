package waitqueue

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Lines are the lines of all keys with waiters. The zero value with GiveBack set is
// ready to use. Lines may be used from many goroutines at once, and hold no memory
// for keys without waiters.
type Lines[T any] struct {
	// GiveBack settles a reservation at a cost in its own units. It is called by those who give
	// up, for one place of a line at a time, and must end in bounded time.
	GiveBack func(reservation T, cost int64)

	mu    sync.Mutex // guards what follows, and all lines
	byKey map[string]*keyed[T]
}

// A keyed is the line of one key.
type keyed[T any] struct {
	Line[T]
	busy bool // a goroutine is giving places back
}

// Wait returns when the turn of a request has come that was charged a place in
// the line of key, or with the context's error: then the request has left the
// line, and is to give its place back itself if returns says so.
func (ls *Lines[T]) Wait(ctx context.Context, key string, p Place[T]) (returns bool, err error) {
	w := &Waiter[T]{Units: p.Units, Turn: make(chan struct{}, 1)}
	ln := ls.join(key, w, p)
	timer := time.NewTimer(time.Until(p.Start))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.Turn:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // else its turn may have come as well
				return ls.leave(key, ln, w), ctx.Err()
			}
		}
		wait, started := ls.start(ln, w)
		if started {
			ls.settle(key, ln)
			return false, nil
		}
		if ctx.Err() != nil {
			return ls.leave(key, ln, w), ctx.Err()
		}
		timer.Reset(wait)
	}
}

// Spare is [Line.Spare] in the line of key.
func (ls *Lines[T]) Spare(key string, p Place[T]) time.Time {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.byKey[key]; ln != nil {
		return ln.Spare(p)
	}
	return p.Start
}

func (ls *Lines[T]) leave(key string, ln *keyed[T], w *Waiter[T]) (returns bool) {
	ls.mu.Lock()
	returns = ln.Leave(w, time.Now())
	ls.mu.Unlock()
	ls.settle(key, ln)
	return returns
}

func (ls *Lines[T]) join(key string, w *Waiter[T], p Place[T]) *keyed[T] {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.byKey[key]
	if ln == nil {
		if ls.byKey == nil {
			ls.byKey = make(map[string]*keyed[T])
		}
		ln = &keyed[T]{}
		ls.byKey[key] = ln
	}
	ln.Join(w, p, time.Now())
	return ln
}

// start takes w out of the line if its turn has come; else it says how long
// that is away, as far as it is known: others than the head look again when
// they are it.
func (ls *Lines[T]) start(ln *keyed[T], w *Waiter[T]) (wait time.Duration, started bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w != ln.Head() {
		return notYet, false
	}
	if wait = time.Until(ln.StartOf(w)); wait > 0 {
		return wait, false
	}
	ln.Start()
	return 0, true
}

// notYet is longer than anything waits, and no waiter needs it to end.
const notYet = 1<<63 - 1

// settle gives back the places that are no longer needed, the last first, unless
// another goroutine is doing so already. It then removes the line if it is empty.
func (ls *Lines[T]) settle(key string, ln *keyed[T]) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln.busy {
		return
	}
	ln.busy = true
	defer func() {
		ln.busy = false
		if ln.Empty() && ls.byKey[key] == ln {
			delete(ls.byKey, key)
		}
	}()
	for {
		reservation, keep, ok := ln.Surplus(time.Now())
		if !ok {
			return
		}
		ls.refund(reservation, keep)
	}
}

// refund calls GiveBack without the lock, and holds it again afterwards.
func (ls *Lines[T]) refund(reservation T, keep int64) {
	ls.mu.Unlock()
	defer ls.mu.Lock()
	ls.GiveBack(reservation, keep)
}

// Waiting returns how many wait, and in how many lines.
func (ls *Lines[T]) Waiting() (waiters, keys int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.byKey {
		waiters += ln.Len()
	}
	return waiters, len(ls.byKey)
}
