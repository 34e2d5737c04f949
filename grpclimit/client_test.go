package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
)

// paced returns a client of an unguarded server, and of a server that denies
// every call for so long.
func paced(t *testing.T, c *grpclimit.Client, o ...grpc.ServerOption) grpc_testing.TestServiceClient {
	return grpc_testing.NewTestServiceClient(dial(t, serve(t, o...), c.Unary(), c.Stream()))
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestClientWaits: a call waits, and fails at once if it would wait beyond its deadline.
func TestClientWaits(t *testing.T) {
	c := paced(t, &grpclimit.Client{Limiter: limiter(t, stint.New(1, 50*time.Millisecond))})
	began := time.Now()
	for range 3 {
		if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("three calls in %v", took)
	}
	slow := paced(t, &grpclimit.Client{Limiter: limiter(t, stint.PerHour(1))})
	if _, err := slow.EmptyCall(soon(t), &grpc_testing.Empty{}); err != nil {
		t.Fatal(err)
	}
	_, err := slow.EmptyCall(within(t, 10*time.Second), &grpc_testing.Empty{})
	limited, ok := errors.AsType[*grpclimit.LimitedError](err)
	if !ok || limited.Server || !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	if retry, _, _ := details(err); retry.GetRetryDelay().AsDuration() < time.Minute {
		t.Errorf("retry %v", retry)
	}
	if _, err := slow.FullDuplexCall(within(t, 10*time.Second)); err != nil {
		t.Errorf("a stream, which is another method: %v", err)
	}
}

// denying ends every call with a status, and counts them.
func denying(code codes.Code, wait time.Duration, calls *atomic.Int64, allow int64) grpc.ServerOption {
	return grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if calls.Add(1) > allow {
			return next(ctx, req)
		}
		st, err := status.New(code, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		if err != nil {
			return nil, err
		}
		return nil, st.Err()
	})
}

// TestClientHonours: a server's RetryInfo pauses calls of its method, and no others.
func TestClientHonours(t *testing.T) {
	for _, code := range []codes.Code{codes.ResourceExhausted, codes.Unavailable} {
		var calls atomic.Int64
		c := paced(t, &grpclimit.Client{}, denying(code, time.Hour, &calls, 99))
		if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); status.Code(err) != code {
			t.Fatal(err)
		}
		_, err := c.EmptyCall(within(t, 10*time.Second), &grpc_testing.Empty{})
		if limited, ok := errors.AsType[*grpclimit.LimitedError](err); !ok || !limited.Server || calls.Load() != 1 {
			t.Errorf("%v after %d calls", err, calls.Load())
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := c.EmptyCall(ctx, &grpc_testing.Empty{}); status.Code(err) != codes.Canceled || calls.Load() != 1 {
			t.Errorf("%v after %d calls", err, calls.Load())
		}
		if _, err := c.UnaryCall(soon(t), &grpc_testing.SimpleRequest{}); status.Code(err) != code || calls.Load() != 2 {
			t.Errorf("another method: %v after %d calls", err, calls.Load())
		}
	}
}

// TestClientPassesOn: neither other statuses nor a RetryInfo without a valid time make calls
// pause.
func TestClientPassesOn(t *testing.T) {
	for code, wait := range map[codes.Code]time.Duration{codes.Internal: time.Hour, codes.ResourceExhausted: -time.Hour, codes.Unavailable: 0} {
		var calls atomic.Int64
		c := paced(t, &grpclimit.Client{}, denying(code, wait, &calls, 99))
		for range 2 {
			if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); status.Code(err) != code {
				t.Error(err)
			}
		}
		if calls.Load() != 2 {
			t.Errorf("%v: %d calls", code, calls.Load())
		}
	}
}

// TestClientRetries: with MaxRetries a call is repeated after the pause, which MaxPause cuts.
func TestClientRetries(t *testing.T) {
	var calls atomic.Int64
	c := paced(t, &grpclimit.Client{MaxRetries: 2, MaxPause: 30 * time.Millisecond}, denying(codes.ResourceExhausted, time.Hour, &calls, 2))
	began := time.Now()
	if _, err := c.EmptyCall(soon(t), &grpc_testing.Empty{}); err != nil || calls.Load() != 3 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Errorf("two pauses in %v", took)
	}
}

// TestClientStream: the status that ends a stream can ask for a pause, and its messages may
// wait.
func TestClientStream(t *testing.T) {
	guard, err := grpclimit.NewServer(limiter(t, stint.PerHour(2)), grpclimit.All(), grpclimit.Options{Messages: true})
	if err != nil {
		t.Fatal(err)
	}
	c := paced(t, &grpclimit.Client{}, guard.Stream())
	stream, err := c.FullDuplexCall(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if _, err := c.FullDuplexCall(within(t, 10*time.Second)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("opened during the pause: %v", err)
	}

	slow := paced(t, &grpclimit.Client{Limiter: limiter(t, stint.New(1, 30*time.Millisecond)), Messages: true})
	began := time.Now()
	stream, err = slow.FullDuplexCall(soon(t))
	for range 3 {
		if err == nil {
			err = stream.Send(&grpc_testing.StreamingOutputCallRequest{})
		}
		if err == nil {
			_, err = stream.Recv()
		}
	}
	if err != nil || time.Since(began) < 90*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
}
