package grpclimit_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/memstore"
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
