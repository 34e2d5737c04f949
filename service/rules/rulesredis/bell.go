package rulesredis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/aside"
)

// listenAgain is the least wait before a lost subscription is renewed. As much is added at random,
// so that a restart of the server does not meet all nodes at once.
const listenAgain = time.Second

// subscribe rings whenever the worker announces a change, until ctx ends. It may miss changes;
// polling goes on.
func (s *Server) subscribe(ctx context.Context) {
	for ctx.Err() == nil {
		if client, err := s.connected(ctx); err == nil {
			s.hear(ctx, client)
		}
		aside.Sleep(ctx, listenAgain+rand.N(listenAgain))
		s.bell.Ring() // something may have changed meanwhile
	}
}

// hear rings for each announcement of the worker, until ctx ends or the connection breaks.
func (s *Server) hear(ctx context.Context, client redis.UniversalClient) {
	heard := client.Subscribe(ctx, s.channel())
	defer heard.Close()
	defer context.AfterFunc(ctx, func() { _ = heard.Close() })() // a receive may wait for ever
	for {
		if _, err := heard.Receive(ctx); err != nil {
			return
		}
		s.bell.Ring()
	}
}
