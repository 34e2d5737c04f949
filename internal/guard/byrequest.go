package guard

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/stint-dev/stint"
)

// A ByRequest makes a T, such as a guard, of the limits that a request brings. It keeps a few thousand
// lists of limits with their T, so that a list that comes again costs a hash and a comparison. It may
// be used from many goroutines at once.
type ByRequest[T any] struct {
	own     T
	limiter *stint.Limiter
	make    func(*stint.Limiter) (T, error)
	seed    maphash.Seed
	slots   [1024][4]atomic.Pointer[known[T]] // four lists for each hash
}

type known[T any] struct {
	limits []stint.Limit
	of     T
}

// NewByRequest returns a ByRequest for a limiter, of which own was made. make makes a T of a limiter of the
// same name and store, but with other limits.
func NewByRequest[T any](own T, l *stint.Limiter, make func(*stint.Limiter) (T, error)) *ByRequest[T] {
	return &ByRequest[T]{own: own, limiter: l, make: make, seed: maphash.MakeSeed()}
}

// Of returns the T of a list of limits. It returns the limiter's own for no limits, and also beside an
// error, which says why the store cannot hold the limits.
func (b *ByRequest[T]) Of(limits []stint.Limit) (T, error) {
	if len(limits) == 0 {
		return b.own, nil
	}
	h := uint64(0)
	for _, l := range limits {
		h = 31*h + maphash.Comparable(b.seed, l)
	}
	slots := &b.slots[h%uint64(len(b.slots))]
	place := int(h>>32) % len(slots) // the one to overwrite if all are taken
	for i := range slots {
		one := slots[i].Load()
		if one == nil {
			place = i
			break
		}
		if slices.Equal(one.limits, limits) {
			return one.of, nil
		}
	}
	limits = slices.Clone(limits)
	l, err := b.limiter.With(limits...)
	var of T
	if err == nil {
		of, err = b.make(l)
	}
	if err != nil {
		return b.own, fmt.Errorf("limits that a request brings: %w", err)
	}
	slots[place].Store(&known[T]{limits, of})
	return of, nil
}
