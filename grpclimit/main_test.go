package grpclimit_test

import (
	"context"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is grpc-go's own test service: it answers, and sends back what a stream
// receives.
type echo struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (echo) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return &grpc_testing.Empty{}, nil
}

func (echo) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

// serve serves echo and health until the test ends.
func serve(t testing.TB, o ...grpc.ServerOption) (address string) {
	t.Helper()
	ln := freeport.Listen(t)
	s := grpc.NewServer(append(o, grpc.WaitForHandlers(true))...)
	grpc_testing.RegisterTestServiceServer(s, echo{})
	healthpb.RegisterHealthServer(s, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// guarded serves behind a guard.
func guarded(t testing.TB, limits []stint.Limit, key grpclimit.Key, o grpclimit.Options) *grpc.ClientConn {
	t.Helper()
	guard, err := grpclimit.NewServer(limiter(t, limits...), key, o)
	if err != nil {
		t.Fatal(err)
	}
	return dial(t, serve(t, guard.Unary(), guard.Stream()))
}

func limiter(t testing.TB, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	return made.Limiter(t, store, limits[0].Name(), limits...)
}

func dial(t testing.TB, address string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// details returns the details of a status.
func details(err error) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure, info *errdetails.ErrorInfo) {
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		case *errdetails.ErrorInfo:
			info = d
		}
	}
	return retry, quota, info
}
