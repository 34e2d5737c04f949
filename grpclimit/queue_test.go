package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

// TestPolicyQueueLeaves has the second of four calls give up, and a fifth come:
// those behind it move up, and the pace is kept.
func TestPolicyQueueLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules, err := policy.Parse([]byte(`{"rules": [{"name": "q", "key": [], "limits": ["5/s leaky_queue burst 20"]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		call, info := guard.UnaryInterceptor, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
		began, started := time.Now(), make([]string, 5)
		leaves, leave := context.WithCancel(t.Context())
		defer leave()
		var all sync.WaitGroup
		ask := func(i int, ctx context.Context) {
			all.Go(func() {
				_, err := call(ctx, nil, info, func(context.Context, any) (any, error) { return nil, nil })
				if started[i] = time.Since(began).String(); err != nil {
					started[i] = "gave up"
				}
			})
			synctest.Wait()
		}
		ask(0, t.Context())
		ask(1, leaves)
		ask(2, t.Context())
		ask(3, t.Context())
		time.Sleep(50 * time.Millisecond)
		leave()
		synctest.Wait()
		ask(4, t.Context())
		all.Wait()
		if got := strings.Join(started, " "); got != "0s gave up 200ms 400ms 600ms" {
			t.Errorf("started at %s", got)
		}
	})
}

// A blindStore takes, and cannot say where a key stands.
type blindStore struct{ *memstore.Store }

type blindBound struct{ stint.Bound }

func (s blindStore) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return blindBound{b}, err
}

func (b blindBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	if op == meter.OpPeek && cost == 0 {
		return stint.Decision{}, errors.New("blind")
	}
	return b.Bound.Decide(ctx, op, key, cost)
}

// TestPassesAfterWait lets a call go on that has waited and been charged,
// although the store cannot say where its key stands.
func TestPassesAfterWait(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := stint.NewLimiter(blindStore{store}, "test", stint.PerSecond(10))
	if err != nil {
		t.Fatal(err)
	}
	reported := 0
	s, err := grpclimit.NewServer(l, func(context.Context, string) (string, bool) { return "a", true },
		grpclimit.Options{MaxWait: time.Second, OnError: func(context.Context, string, error) { reported++ }})
	if err != nil {
		t.Fatal(err)
	}
	handler := func(context.Context, any) (any, error) { return "passed", nil }
	got, err := s.UnaryInterceptor(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, handler)
	if got != "passed" || err != nil || reported != 1 {
		t.Errorf("%v, %v, %d errors reported; want it passed, and one", got, err, reported)
	}
}
