// Command grpc is a gRPC server that answers two calls an hour from each address, and a client that
// makes three.
package main

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing" // stands for your service
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/memstore"
)

type service struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (service) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return &grpc_testing.Empty{}, nil
}

func main() {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "calls", stint.PerHour(2))
	if err != nil {
		log.Fatal(err)
	}
	guard, err := grpclimit.NewServer(limiter, grpclimit.PeerKey(), grpclimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(guard.Unary(), guard.Stream())
	grpc_testing.RegisterTestServiceServer(server, service{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		_, err := grpc_testing.NewTestServiceClient(conn).EmptyCall(context.Background(), &grpc_testing.Empty{})
		fmt.Println(status.Code(err))
	}
}
