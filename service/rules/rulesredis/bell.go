package rulesredis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/aside"
)

// listenAgain is how long a lost subscription stays lost, with as much of chance
// again, so that a restart does not meet all nodes at once.
const listenAgain = time.Second

// subscribe rings whenever the worker says that something has changed, until ctx
// ends. It may miss changes: the poll goes on.
func (s *Server) subscribe(ctx context.Context) {
	for ctx.Err() == nil {
		if client, err := s.connected(ctx); err == nil {
			s.hear(ctx, client)
		}
		aside.Sleep(ctx, listenAgain+rand.N(listenAgain))
		s.bell.Ring() // what changed meanwhile
	}
}

// hear rings for what the worker says, until ctx ends or the connection breaks.
func (s *Server) hear(ctx context.Context, client redis.UniversalClient) {
	heard := client.Subscribe(ctx, s.channel())
	defer heard.Close()
	defer context.AfterFunc(ctx, func() { _ = heard.Close() })() // it may wait for ever
	for {
		if _, err := heard.Receive(ctx); err != nil {
			return
		}
		s.bell.Ring()
	}
}
