package rehearse

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-dev/stint/memstore"
)

const (
	// checkpointEvery is how far checkpoints are apart: a rehearsal leaves out
	// that much at most.
	checkpointEvery = 5 * time.Minute
	// checkpoints is how many are kept: those of a recording's 15 minutes.
	checkpoints = 4
	// checkpointBytes bounds one, which is about 150,000 keys. A store that
	// holds more has none.
	checkpointBytes = 4 << 20
)

// A Checkpoint is what all keys had used at some moment.
type Checkpoint struct {
	At    time.Time
	state []byte
}

// Checkpoints are the last of a store in memory. The zero value has none.
type Checkpoints struct {
	mu   sync.Mutex
	kept []Checkpoint // by time
}

var errLarge = errors.New("more than a checkpoint may have")

// bounded is a buffer that fails when it is too large.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > checkpointBytes {
		return 0, errLarge
	}
	return b.Buffer.Write(p)
}

// Keep makes a checkpoint of the store now and then, until ctx is done.
func (c *Checkpoints) Keep(ctx context.Context, store *memstore.Store) {
	ticks := time.NewTicker(checkpointEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			c.add(store)
		}
	}
}

// add makes a checkpoint. Requests that come while it is made may be in it or
// not: those of some milliseconds.
func (c *Checkpoints) add(store *memstore.Store) {
	const leastKey = 16 // bytes of a key in a checkpoint
	at, b := time.Now(), new(bounded)
	if store.Stats().Keys > checkpointBytes/leastKey || store.Save(b) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept = append(c.kept, Checkpoint{at, b.Bytes()}); len(c.kept) > checkpoints {
		c.kept = append([]Checkpoint(nil), c.kept[1:]...)
	}
}

// Since returns the first checkpoint that is not before a time; nil if there is
// none.
func (c *Checkpoints) Since(first time.Time) *Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.kept {
		if !c.kept[i].At.Before(first) {
			return &c.kept[i]
		}
	}
	return nil
}
