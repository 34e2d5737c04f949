package rulesredis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint/internal/aside"
)

// listenAgain is how long a lost subscription stays lost, with as much of chance
// again, so that a restart does not meet all nodes at once.
const listenAgain = time.Second

// subscribe rings whenever the worker says that something has changed, until ctx
// ends. It may miss changes: the poll goes on.
func (s *Server) subscribe(ctx context.Context) {
	for ctx.Err() == nil {
		if client, err := s.connected(); err == nil {
			_ = client.Receive(ctx, client.B().Subscribe().Channel(s.channel()).Build(), func(rueidis.PubSubMessage) { s.bell.Ring() })
		}
		aside.Sleep(ctx, listenAgain+rand.N(listenAgain))
		s.bell.Ring() // what changed meanwhile
	}
}
