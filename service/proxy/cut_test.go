package proxy_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/redisstore"
)

// inStores runs a test in memory and over Redis.
func inStores(t *testing.T, test func(t *testing.T, store stint.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, memstore.New(memstore.Options{})) })
	t.Run("redis", func(t *testing.T) {
		store, err := redisstore.New(redisstore.Options{URL: redistest.Start(t).URL(), Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		test(t, patient{store})
	})
}

// A patient store settles however long it takes: on a busy machine that may be more than the second
// that a response has.
type patient struct{ *redisstore.Store }

func (p patient) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	return p.Store.Settle(context.WithoutCancel(ctx), id, cost)
}
