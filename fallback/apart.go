package fallback

import "github.com/stint-dev/stint"

// Apart returns limit i of b by itself: a charge to it is charged to that limit
// alone, and to no other of the name. It is for callers that
// charge limit by limit. A store whose bounds have no method Apart binds
// the limit alone, by bind.
func Apart(b stint.Bound, i int, bind func(name string, limits ...stint.Limit) (stint.Bound, error)) (stint.Bound, error) {
	if one, ok := b.(interface{ Apart(i int) stint.Bound }); ok {
		return one.Apart(i), nil
	}
	return bind(b.Name(), b.Limits()[i])
}
