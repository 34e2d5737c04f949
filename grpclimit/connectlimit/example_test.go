package connectlimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/grpclimit/connectlimit"
	"github.com/stint-dev/stint/memstore"
)

func Example() {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "calls", stint.PerHour(2))
	if err != nil {
		log.Fatal(err)
	}
	guard, err := grpclimit.NewServer(limiter, grpclimit.PeerKey(), grpclimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// The generated NewPingServiceHandler takes the same option.
	mux := http.NewServeMux()
	mux.Handle(unary, connect.NewUnaryHandler(unary, func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		return connect.NewResponse(r.Msg), nil
	}, connect.WithInterceptors(connectlimit.Interceptor(guard))))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+unary)
	for range 3 {
		if r, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("hello"))); err != nil {
			fmt.Println(connect.CodeOf(err))
		} else {
			fmt.Println(r.Msg.Value, r.Header().Get("RateLimit"))
		}
	}
	// Output:
	// hello "calls";r=1;t=1800
	// hello "calls";r=0;t=3600
	// resource_exhausted
}
