package guard

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/stint-dev/stint"
)

// A Given has what a guard makes of limits that requests bring. The last few thousand lists
// are known, so that one that comes again costs a hash and a comparison. It may be used from many goroutines at once.
type Given[T any] struct {
	own     T
	limiter *stint.Limiter
	make    func(*stint.Limiter) (T, error)
	seed    maphash.Seed
	slots   [1024][4]atomic.Pointer[given[T]] // what is known at once, by hash
}

type given[T any] struct {
	limits []stint.Limit
	of     T
}

// NewGiven returns a Given that knows what was made of the limiter l alone. make makes it of
// a limiter of the same name and store.
func NewGiven[T any](own T, l *stint.Limiter, make func(*stint.Limiter) (T, error)) *Given[T] {
	return &Given[T]{own: own, limiter: l, make: make, seed: maphash.MakeSeed()}
}

// Of returns what was made of limits: the limiter's own for none, and with an error that
// says why the store cannot hold them.
func (g *Given[T]) Of(limits []stint.Limit) (T, error) {
	if len(limits) == 0 {
		return g.own, nil
	}
	h := uint64(0)
	for _, l := range limits {
		h = 31*h + maphash.Comparable(g.seed, l)
	}
	slots := &g.slots[h%uint64(len(g.slots))]
	place := int(h>>32) % len(slots) // where all are taken
	for i := range slots {
		known := slots[i].Load()
		if known == nil {
			place = i
			break
		}
		if slices.Equal(known.limits, limits) {
			return known.of, nil
		}
	}
	limits = slices.Clone(limits)
	l, err := g.limiter.With(limits...)
	var of T
	if err == nil {
		of, err = g.make(l)
	}
	if err != nil {
		return g.own, fmt.Errorf("limits that a request brings: %w", err)
	}
	slots[place].Store(&given[T]{limits, of})
	return of, nil
}
