package fallback_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// A halfDown store fails for half of the keys, as a cluster of which a node is away.
type halfDown struct {
	stint.Store
	tries atomic.Int64 // of debts
}

func (h *halfDown) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := h.Store.Bind(name, limits...)
	return &halfBound{b, h}, err
}

func (h *halfDown) Reserve(context.Context, []stint.Layer, int64, time.Duration) (stint.Decision, stint.ReservationID, error) {
	h.tries.Add(1)
	return stint.Decision{}, "", errGone
}

type halfBound struct {
	stint.Bound
	of *halfDown
}

func (b *halfBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	if strings.HasPrefix(key, "away") {
		return stint.Decision{}, errGone
	}
	return b.Bound.Decide(ctx, op, key, cost)
}

// TestFlapping has the shared store fail and answer in turn: debts are tried a few
// times a second, not after each answer.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &halfDown{Store: memstore.New(memstore.Options{})}
		store := fallback.New(h, fallback.Options{})
		defer store.Close()
		l := made.Bound(t, store, "api", limit(t, "100 per hour"))
		for i := range 2000 { // in two seconds
			for _, key := range []string{"away", "there"} {
				if _, err := l.Allow(t.Context(), fmt.Sprint(key, i%50), 1); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Millisecond)
		}
		t.Logf("%d tries", h.tries.Load())
		if n := h.tries.Load(); n < 4 || n > 80 {
			t.Errorf("debts were tried %d times in two seconds", n)
		}
	})
}
