// Package layercheck has what every store refuses of the layers of a request, and in
// which words. How they become one list of limits is the store's own: a function over
// the types of all stores makes their lists escape, and a decision about two keys in
// memory takes three times as long (BenchmarkLayers in memstore).
package layercheck

import (
	"fmt"

	"github.com/stint-dev/stint"
)

// One returns why a store cannot decide about the i-th layer of a request. here
// says whether its bound is of the store, and limits how many limits that has.
func One(i int, l *stint.Layer, here bool, limits int) error {
	switch {
	case !here:
		return fmt.Errorf("%w: layer %d is not bound to this store", stint.ErrLayers, i)
	case l.Weight < 0:
		return fmt.Errorf("%w: a weight of %d", stint.ErrCost, l.Weight)
	case l.Answers != nil && len(l.Answers) < limits:
		return fmt.Errorf("%w: room for %d answers of %d limits", stint.ErrLayers, len(l.Answers), limits)
	}
	return nil
}

// Twice returns the error for a key that a request has twice under a limit of a
// name: a store would charge it for one of them alone.
func Twice(name string) error {
	return fmt.Errorf("%w: the same key under limit %q twice", stint.ErrLayers, name)
}

// Count returns why a store cannot decide by so many limits at once, or nil.
func Count(limits int) error {
	if limits < 1 || limits > stint.MaxLimits {
		return fmt.Errorf("%w: %d of them: from 1 to %d", stint.ErrLayers, limits, stint.MaxLimits)
	}
	return nil
}
