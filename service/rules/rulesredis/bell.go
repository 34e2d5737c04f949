package rulesredis

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// listenAgain is how long a lost subscription stays lost, with as much of chance
// again, so that a restart does not meet all nodes at once.
const listenAgain = time.Second

// A bell rings whenever the worker says that something has changed: one
// subscription, however many wait. It may miss changes.
type bell struct {
	mu     sync.Mutex
	stop   context.CancelFunc // nil before the first wait
	done   chan struct{}
	rings  chan struct{} // closed and made anew at each ring
	closed bool
}

// listen subscribes if need be, and returns what rings next.
func (b *bell) listen(s *Server) (<-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	if b.stop == nil {
		var ctx context.Context
		ctx, b.stop = context.WithCancel(context.Background())
		b.rings, b.done = make(chan struct{}), make(chan struct{})
		go b.subscribe(ctx, s)
	}
	return b.rings, nil
}

// subscribe rings at each message until ctx ends.
func (b *bell) subscribe(ctx context.Context, s *Server) {
	defer close(b.done)
	for ctx.Err() == nil {
		if client, err := s.connected(); err == nil {
			// The poll goes on while it is lost.
			_ = client.Receive(ctx, client.B().Subscribe().Channel(s.channel()).Build(), func(rueidis.PubSubMessage) { b.ring() })
		}
		timer := time.NewTimer(listenAgain + rand.N(listenAgain))
		select {
		case <-ctx.Done():
		case <-timer.C:
			b.ring() // what changed meanwhile
		}
		timer.Stop()
	}
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.rings)
	b.rings = make(chan struct{})
}

func (b *bell) close() {
	b.mu.Lock()
	stop, done := b.stop, b.done
	b.closed = true
	b.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}
