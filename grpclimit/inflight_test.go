package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// TestInFlight: a stream holds its place until it ends or its client goes. Unary calls find
// no room meanwhile.
func TestInFlight(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	rules := made.Rules(t, `{"rules":[{"name":"pool","key":[],"limits":["1 in flight"]}]}`)
	p := made.Policy(t, store, rules, policy.Options{})
	ruled, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]*grpc_testing.TestServiceClient{
		"limiter": new(grpc_testing.NewTestServiceClient(guarded(t, []stint.Limit{stint.InFlight(1)}, grpclimit.All(), grpclimit.Options{}))),
		"rules":   new(grpc_testing.NewTestServiceClient(dial(t, serve(t, ruled.Unary(), ruled.Stream())))),
	} {
		c := *conn
		for _, gone := range []bool{false, true} {
			ctx, cancel := context.WithCancel(soon(t))
			stream, err := c.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, err = c.EmptyCall(soon(t), &grpc_testing.Empty{})
			retry, quota, _ := details(err)
			if status.Code(err) != codes.ResourceExhausted || retry.GetRetryDelay().GetSeconds() != 1 || len(quota.GetViolations()) != 1 {
				t.Errorf("%s: %v, retry %v, %v", name, err, retry, quota)
			}
			if gone {
				cancel()
			} else if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			for status.Code(err) == codes.ResourceExhausted { // until the handler has returned
				_, err = c.EmptyCall(soon(t), &grpc_testing.Empty{})
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
	}
	if n := p.InFlight()["pool"]; n > 1 {
		t.Errorf("%d in flight", n)
	}
	if _, err := grpclimit.NewServer(limiter(t, stint.InFlight(1)), grpclimit.All(), grpclimit.Options{Messages: true}); err == nil {
		t.Error("messages: no error")
	}
	for text, want := range map[string]bool{
		`{"rules": [{"name": "pool", "key": [], "limits": ["1 in flight"]}]}`:                                                                     false,
		`{"rules": [{"name": "pool", "key": [], "limits": ["1 in flight"], "shadow": true}]}`:                                                     true,
		`{"rules": [{"name": "pool", "key": [], "limits": ["1 in flight"], "unless": {"grpc.message": "true"}}], "attributes": ["grpc.message"]}`: true,
		`{"rules": [{"name": "pool", "key": [], "limits": ["1 in flight"], "match": {"grpc.message": "true"}}]}`:                                  false,
		`{"rules": [{"name": "pool", "key": [], "limits": ["1 in flight"], "match": [{"grpc.message": false}, {"grpc.message": true}]}]}`:         false,
		`{"rules": [{"name": "pool", "key": [], "limits": ["1 in flight"], "match": {"grpc.message": false}}]}`:                                   true,
		`{"rules": [{"name": "pool", "key": ["grpc.message"], "limits": ["1 in flight"]}]}`:                                                       false,
		`{"rules": [{"name": "pool", "key": [], "limits": ["1 in flight"], "unless": {"grpc.message": true, "method": "POST"}}]}`:                 false,
	} {
		if rules, err = policy.Parse([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if p, err = policy.New(store, rules, policy.Options{}); err != nil {
			t.Fatal(err)
		}
		_, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{Messages: true})
		if (err == nil) != want {
			t.Errorf("messages under %s: %v", text, err)
		}
		if _, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{}); err != nil {
			t.Error(err)
		}
	}
}
