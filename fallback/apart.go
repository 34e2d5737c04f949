package fallback

import "github.com/stint-dev/stint"

// Apart returns limit i of b on its own, for callers that charge limit by limit: a charge to it
// leaves the other limits of the name alone. Where the store's bounds have no method Apart, bind
// binds the limit alone.
func Apart(b stint.Bound, i int, bind func(name string, limits ...stint.Limit) (stint.Bound, error)) (stint.Bound, error) {
	if one, ok := b.(interface{ Apart(i int) stint.Bound }); ok {
		return one.Apart(i), nil
	}
	return bind(b.Name(), b.Limits()[i])
}
