package grpclimit_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/memstore"
)

func Example() {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "calls", stint.PerHour(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := grpclimit.NewServer(limiter, grpclimit.PeerKey(), grpclimit.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(guard.Unary(), guard.Stream())
	grpc_testing.RegisterTestServiceServer(server, echo{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = server.Serve(ln) }()
	defer server.Stop()

	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	for range 3 {
		_, err := grpc_testing.NewTestServiceClient(conn).EmptyCall(context.Background(), &grpc_testing.Empty{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}
