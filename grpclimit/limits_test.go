package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
)

// TestLimits holds calls to limits from Options.Limits, and to the limiter's own if those
// cannot be held.
func TestLimits(t *testing.T) {
	plan, errors := []stint.Limit{stint.PerHour(3)}, 0
	c := grpc_testing.NewTestServiceClient(guarded(t, []stint.Limit{stint.PerHour(1)}, grpclimit.All(), grpclimit.Options{
		Limits:  func(context.Context, grpclimit.Call) []stint.Limit { return plan },
		OnError: func(context.Context, string, error) { errors++ },
	}))
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted} {
		if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); status.Code(err) != want {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	plan = []stint.Limit{stint.PerHour(0)}
	if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); status.Code(err) != codes.ResourceExhausted || errors != 1 {
		t.Errorf("%v, %d errors", err, errors)
	}
}
