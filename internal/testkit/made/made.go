// Package made has limits, limiters, rules and policies for tests, which end where one
// cannot be made.
package made

import (
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// Limit returns the limit of a text.
func Limit(t testing.TB, text string) stint.Limit {
	t.Helper()
	l, err := stint.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Limiter returns a limiter, as [stint.NewLimiter] does.
func Limiter(t testing.TB, store stint.Store, name string, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	l, err := stint.NewLimiter(store, name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Bound returns limits that are bound in a store.
func Bound(t testing.TB, store stint.Store, name string, limits ...stint.Limit) stint.Bound {
	t.Helper()
	b, err := store.Bind(name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Rules returns the rules of a text.
func Rules(t testing.TB, text string) *policy.Rules {
	t.Helper()
	r, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Policy returns a policy, as [policy.New] does.
func Policy(t testing.TB, store stint.Store, rules *policy.Rules, o policy.Options) *policy.Policy {
	t.Helper()
	p, err := policy.New(store, rules, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
