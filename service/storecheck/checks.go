package storecheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

// most is the largest log that the check makes: its units are many, so that a
// few entries of it are long.
const most = 1_000_000_000

// A scenario uses a part of the script that only some limits, modes or moments use.
type scenario struct {
	name    string
	store   stint.Store
	limit   string
	keys    int
	callers int // at once
	takes   int // of each, for all of which there is room
	cost    int64
	uneven  bool  // every other caller's takes cost one more
	left    int64 // of each key afterwards; -1 where this process cannot know
}

// scenarios goes through the parts of the script that [operations] do not use.
func scenarios(ctx context.Context, store *Scratch, timeout time.Duration) error {
	flooded, err := store.Another(redisstore.Options{Timeout: timeout, NewKeys: 1})
	if err != nil {
		return err
	}
	for _, s := range []scenario{
		{"a long log", store, fmt.Sprint(most, "/24h sliding_log"), 1, 1, 60, most / 100, false, most / 100 * 40},
		{"batched buckets", store, "1000/24h", 1, 64, 1, 1, false, 936},
		{"batched buckets of two costs", store, "1000/24h", 1, 64, 1, 1, true, 904},
		{"batched logs", store, "1000/24h sliding_log", 1, 64, 1, 1, false, 936},
		{"mode lease", store.Mode(redisstore.Lease), "1000/24h", 1, 64, 1, 1, false, -1},
		{"mode async", store.Mode(redisstore.Async), "1000/24h", 1, 8, 8, 5, false, -1},
		{"new keys above their bound", flooded, "10/24h", 8, 1, 1, 1, false, -1},
	} {
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return heartbeat(ctx, store, timeout)
}

// run takes what there is to take, and looks at what is left.
func (s *scenario) run(ctx context.Context) error {
	l, err := stint.Parse(s.limit)
	if err != nil {
		return err
	}
	limiter, err := stint.NewLimiter(s.store, s.name, l)
	if err != nil {
		return err
	}
	for i := range s.keys {
		key := fmt.Sprint("way ", i)
		if err := s.take(ctx, limiter, key); err != nil {
			return err
		}
		d, err := limiter.Peek(ctx, key, 0)
		if err != nil {
			return err
		}
		if s.left >= 0 && d.Remaining != s.left {
			return fmt.Errorf("%d remain, want %d", d.Remaining, s.left)
		}
	}
	return nil
}

// take takes from a key.
func (s *scenario) take(ctx context.Context, l *stint.Limiter, key string) error {
	failed := make([]error, s.callers)
	var all sync.WaitGroup
	for i := range failed {
		cost := s.cost
		if s.uneven && i%2 == 1 {
			cost++
		}
		all.Go(func() {
			for range s.takes {
				d, err := l.Take(ctx, key, cost)
				if err == nil && !d.Allowed {
					err = fmt.Errorf("denied %d with %d remaining", cost, d.Remaining)
				}
				if err != nil {
					failed[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return cmp.Or(failed...)
}

// heartbeat has this process counted among those that share the store's keys.
func heartbeat(ctx context.Context, store *Scratch, timeout time.Duration) error {
	counted := make(chan int, 8)
	store.CountNodes(func(n int) { counted <- n })
	select {
	case n := <-counted:
		if n != 1 {
			return fmt.Errorf("the heartbeat: %d processes, want 1", n)
		}
		return nil
	case <-time.After(timeout):
		return errors.New("the heartbeat: no answer")
	case <-ctx.Done():
		return ctx.Err()
	}
}
