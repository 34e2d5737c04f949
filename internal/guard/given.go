package guard

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/stint-dev/stint"
)

// A Given makes a T, such as a guard, of the limits that a request brings. It keeps a few thousand
// lists of limits with their T, so that a list that comes again costs a hash and a comparison. It may
// be used from many goroutines at once.
type Given[T any] struct {
	own     T
	limiter *stint.Limiter
	make    func(*stint.Limiter) (T, error)
	seed    maphash.Seed
	slots   [1024][4]atomic.Pointer[given[T]] // four lists for each hash
}

type given[T any] struct {
	limits []stint.Limit
	of     T
}

// NewGiven returns a Given for a limiter, of which own was made. make makes a T of a limiter of the
// same name and store, but with other limits.
func NewGiven[T any](own T, l *stint.Limiter, make func(*stint.Limiter) (T, error)) *Given[T] {
	return &Given[T]{own: own, limiter: l, make: make, seed: maphash.MakeSeed()}
}

// Of returns the T of a list of limits. It returns the limiter's own for no limits, and also beside an
// error, which says why the store cannot hold the limits.
func (g *Given[T]) Of(limits []stint.Limit) (T, error) {
	if len(limits) == 0 {
		return g.own, nil
	}
	h := uint64(0)
	for _, l := range limits {
		h = 31*h + maphash.Comparable(g.seed, l)
	}
	slots := &g.slots[h%uint64(len(g.slots))]
	place := int(h>>32) % len(slots) // the one to overwrite if all are taken
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
