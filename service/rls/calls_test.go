package rls_test

import (
	"context"
	"net"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint/service/rls"
	"github.com/stint-dev/stint/service/server"
)

// open begins n calls on connections in turn, and does not end them before ctx does: over has the
// codes of those that are.
func open(ctx context.Context, t *testing.T, method string, n int, on ...*grpc.ClientConn) (over chan codes.Code) {
	t.Helper()
	over = make(chan codes.Code, n)
	for i := range n {
		s, err := on[i%len(on)].NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		go func() { over <- status.Code(s.RecvMsg(new(pb.RateLimitResponse))) }()
	}
	return over
}

// TestCallsBounded begins calls and does not end them, on several connections. Those
// beyond the bound of an address are refused at once, other addresses are answered,
// and all are when the calls are over. Watches of health take no place of a call.
func TestCallsBounded(t *testing.T) {
	calls, watches := server.NewRequests(16, 4, nil), server.NewRequests(4, 1, nil)
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{Read: time.Minute, Enter: func(peer string, watch bool) (leave func(), why string) {
		if watch {
			return watches.Enter(server.AddressOf(peer))
		}
		return calls.Enter(server.AddressOf(peer))
	}})
	from := func(ip string) *grpc.ClientConn {
		return dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext(ctx, "tcp", address)
			}))
	}
	flood := []*grpc.ClientConn{from("127.0.0.2"), from("127.0.0.2")}
	other := pb.NewRateLimitServiceClient(from("127.0.0.3"))
	ask := func(c pb.RateLimitServiceClient) codes.Code {
		_, err := c.ShouldRateLimit(soon(t), request("shop", "user", "ann"))
		return status.Code(err)
	}
	if code := ask(other); code == codes.Unavailable {
		t.Skip("no other loopback address here")
	}
	ctx, end := context.WithCancel(soon(t))
	defer end()
	begin := func(method string, in int) { // in of 24 are let in, and not ended
		t.Helper()
		refused := open(ctx, t, method, 24, flood...)
		for range 24 - in {
			if code := <-refused; code != codes.Unavailable {
				t.Errorf("%s beyond the bound: %v", method, code)
			}
		}
	}
	begin(healthpb.Health_Watch_FullMethodName, 1)
	if code := ask(pb.NewRateLimitServiceClient(flood[0])); code != codes.OK {
		t.Errorf("a call beside watches: %v", code)
	}
	begin(pb.RateLimitService_ShouldRateLimit_FullMethodName, 4)
	if code := ask(other); code != codes.OK {
		t.Errorf("another address during the flood: %v", code)
	}
	end()
	mine := pb.NewRateLimitServiceClient(flood[1])
	for by := time.Now().Add(time.Minute); ask(mine) != codes.OK; time.Sleep(time.Millisecond) {
		if time.Now().After(by) {
			t.Fatal("refused after the flood")
		}
	}
	for range 50 {
		for _, c := range []pb.RateLimitServiceClient{mine, other} {
			if code := ask(c); code != codes.OK {
				t.Fatalf("after the flood: %v", code)
			}
		}
	}
}
