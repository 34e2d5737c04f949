package rulesdb

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

// waiters share what announces changes: one connection, however many wait.
type waiters struct {
	mu     sync.Mutex
	stop   context.CancelFunc // ends the announcer; nil before the first Wait
	done   chan struct{}      // closed when the announcer has ended
	bell   chan struct{}      // closed and made anew at each announcement
	closed bool
}

var errClosed = errors.New("closed")

// Wait implements [rulesource.Source]. It looks at the version at once, whenever
// the database announces a change or this DB has written one, and every
// [Options.Poll] at the latest. An error of the database is returned at once, so that
// the caller can report it.
func (db *DB) Wait(ctx context.Context, held rulesource.Version) error {
	for {
		bell, err := db.waiters.listen(db)
		if err != nil {
			return err
		}
		look, stop := context.WithTimeout(ctx, callTimeout)
		v, err := db.version(look, db.sql)
		stop()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return db.failed(err)
		case v != held:
			return nil
		}
		timer := time.NewTimer(db.o.Poll - rand.N(db.o.Poll/5+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-bell:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// listen starts the announcer if need be, and returns what rings next.
func (w *waiters) listen(db *DB) (<-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errClosed
	}
	if w.stop == nil {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.bell, w.done = make(chan struct{}), make(chan struct{})
		go w.announce(ctx, db.d.changed(ctx, db))
	}
	return w.bell, nil
}

// announce rings the bell at each hint, until ctx ends.
func (w *waiters) announce(ctx context.Context, hints <-chan struct{}) {
	defer close(w.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hints:
		}
		w.ring()
	}
}

// ring has every Wait look at the version.
func (w *waiters) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bell != nil {
		close(w.bell)
		w.bell = make(chan struct{})
	}
}

func (w *waiters) close() {
	w.mu.Lock()
	stop, done := w.stop, w.done
	if !w.closed && w.bell != nil {
		close(w.bell)
		w.bell = make(chan struct{})
	}
	w.closed = true
	w.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}
