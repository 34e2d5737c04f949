package stint_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// A watchedStore binds limits whose bounds look at who calls them.
type watchedStore struct {
	stint.Store
	calls map[string]bool // a method of Limiter, and whether it was inlined
}

func (s watchedStore) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return watchedBound{b, s.calls}, err
}

type watchedBound struct {
	stint.Bound
	calls map[string]bool
}

func (b watchedBound) look() {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if _, method, ok := strings.Cut(f.Function, "(*Limiter)."); ok {
			b.calls[method] = f.Func == nil // as the runtime says of what is inlined
		}
	}
}

// Divert keeps the limiter from putting its own bound before this one.
func (watchedBound) Divert(stint.Bound) {}

func (b watchedBound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	b.look()
	return b.Bound.Allow(ctx, key, cost)
}

func (b watchedBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	b.look()
	return b.Bound.Decide(ctx, op, key, cost)
}

// TestInlined holds the short ways to an answer to what the compiler inlines: else each
// answer is copied once more, which costs a fifth of a Take.
func TestInlined(t *testing.T) {
	if testing.CoverMode() != "" {
		t.Skip("counting what is covered makes functions longer")
	}
	s := watchedStore{memstore.New(memstore.Options{}), make(map[string]bool)}
	l := made.Limiter(t, s, "inlined", stint.PerSecond(100))
	ctx := context.Background()
	_, _ = l.Allow(ctx, "a")
	_, _ = l.AllowN(ctx, "a", 2)
	_, _ = l.Take(ctx, "a", 1)
	_, _ = l.Peek(ctx, "a", 1)
	_, _ = l.TakeUpTo(ctx, "a", 1)
	if len(s.calls) != 5 {
		t.Fatalf("seen: %v", s.calls)
	}
	for method, inlined := range s.calls {
		if !inlined {
			t.Errorf("%s is not inlined where it is called", method)
		}
	}
}
