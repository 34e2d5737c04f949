package stint_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// Two limiters of equal limits share nothing, unless they have one name.
func TestNamesAreApart(t *testing.T) {
	store, ctx := memstore.New(memstore.Options{}), context.Background()
	limiter := func(name string) *stint.Limiter {
		return made.Limiter(t, store, name, stint.PerMinute(5))
	}
	login, reset, again := limiter("login"), limiter("password reset"), limiter("login")
	if ok, err := login.AllowN(ctx, "alice", 5); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, _ := reset.AllowN(ctx, "alice", 5); !ok {
		t.Error("five logins deny the password reset")
	}
	if ok, _ := again.Allow(ctx, "alice"); ok {
		t.Error("two limiters of one name do not share what alice has used")
	}
}

// Of several limits under one name each is known by its own name, else by its
// algorithm and period: in any order, with any numbers.
func TestLimitsOfOneName(t *testing.T) {
	store, ctx := memstore.New(memstore.Options{}), context.Background()
	second, hour := stint.PerSecond(10), stint.PerHour(100)
	l := made.Limiter(t, store, "api", second, hour)
	if d, err := l.Take(ctx, "a", 10); !d.Allowed || err != nil {
		t.Fatal(d, err)
	}
	l = made.Limiter(t, store, "api", hour, second)
	if d, _ := l.Take(ctx, "a", 1); d.Allowed || d.Denied != 2 {
		t.Errorf("after a change of the order: %+v", d)
	}
}

func TestBadNames(t *testing.T) {
	store := memstore.New(memstore.Options{})
	for _, c := range []struct{ name, says string }{
		{"", "empty name"}, {strings.Repeat("x", 257), "257 bytes: at most 256"}, {"a\nb", "control characters"}, {"\xff", "UTF-8"}, {"a\u0085", "control characters"},
	} {
		if _, err := stint.NewLimiter(store, c.name, stint.PerSecond(1)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.name, err)
		}
	}
	_, err := stint.NewLimiter(store, "api", stint.PerSecond(1), stint.PerSecond(2).WithBurst(9))
	if !errors.Is(err, stint.ErrLayers) || !strings.Contains(err.Error(), `two limits "gcra:1s" under the name "api"`) || !strings.Contains(err.Error(), "WithName") {
		t.Error(err)
	}
	if _, err := stint.NewLimiter(store, "api", stint.PerSecond(1), stint.PerSecond(2).WithName("burst")); err != nil {
		t.Error(err)
	}
}
