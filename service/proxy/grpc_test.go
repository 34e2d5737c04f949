package proxy_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
)

const grpcRules = `
rules:
  - {name: ban, match: {header.x-who: banned}, block: true}
  - {name: health, match: {path: /grpc.health.v1.Health/*}, key: [header.x-who], limits: 2 per hour}
  - {name: priced, match: {header.x-cost: true}, key: [], limits: 10/s, cost: {header: x-cost}}
`

// grpcFront puts a proxy in front of a grpc-go server, and a grpc-go client in front of the proxy.
func grpcFront(t *testing.T, rules string, server *grpc.Server) (*front, *grpc.ClientConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	f := start(t, &url.URL{Scheme: "http", Host: ln.Addr().String()}, time.Second, yaml(t, rules), httplimit.ClientIP{})
	conn, err := grpc.NewClient("passthrough:///"+f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return f, conn
}

// healthy is a server that answers checks of health.
func healthy() *grpc.Server {
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server
}

func as(t *testing.T, pairs ...string) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// TestGRPCUnary calls through the proxy until it is denied: the client sees
// RESOURCE_EXHAUSTED, when to come back and which limit denied.
func TestGRPCUnary(t *testing.T) {
	_, conn := grpcFront(t, grpcRules, healthy())
	client, ctx := grpc_health_v1.NewHealthClient(conn), as(t, "x-who", "anna")
	for range 2 {
		answer, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatalf("%v, %v", answer, err)
		}
	}
	var header metadata.MD
	_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&header))
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted || s.Message() != "Quota Exceeded" {
		t.Fatalf("denied as %v", err)
	}
	var retry *errdetails.RetryInfo
	var quota *errdetails.QuotaFailure
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		default:
			t.Errorf("a detail of %T: %v", d, d)
		}
	}
	if wait := retry.GetRetryDelay().AsDuration(); wait <= 29*time.Minute || wait > 30*time.Minute {
		t.Errorf("RetryInfo says %v, want just under half an hour", wait)
	}
	if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "health" {
		t.Errorf("QuotaFailure says %v", quota)
	}
	// The same again as metadata, for clients without the details.
	if got := header.Get("retry-after"); len(got) != 1 || !regexp.MustCompile(`^(1800|17\d\d)$`).MatchString(got[0]) { // less what has passed
		t.Errorf("retry-after %q", got)
	}
	if got := header.Get("ratelimit"); len(got) != 1 || !regexp.MustCompile(`^"health";r=0;t=(1800|17\d\d)$`).MatchString(got[0]) {
		t.Errorf("ratelimit %q", got)
	}
}

// TestGRPCLeavers: a call whose client leaves, or whose deadline ends, before its status is known counts by
// the status, though its header may have come, and as one that failed if there is none.
func TestGRPCLeavers(t *testing.T) {
	for name, rules := range map[string]string{
		"count":  "rules: [{name: proxy, key: [], limits: 9/d, count: {status: [401]}}]",
		"finish": "rules: [{name: proxy, key: [], limits: 9/d, count: {status: [401]}}, {name: places, key: [], limits: 9 in flight, finish: 20s}]",
	} {
		t.Run(name, func(t *testing.T) { leaveCalls(t, rules) })
	}
}

func leaveCalls(t *testing.T, rules string) {
	answer := make(chan codes.Code)
	f, conn := grpcFront(t, rules, grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if md, _ := metadata.FromIncomingContext(s.Context()); len(md.Get("x-silent")) > 0 {
			<-s.Context().Done()
			return status.Error(codes.Unauthenticated, "no")
		}
		_ = s.RecvMsg(&grpc_health_v1.HealthCheckRequest{})
		_ = s.SendHeader(nil)
		return status.Error(<-answer, "")
	})))
	counts := func(want int64) {
		t.Helper()
		await.Until(t, fmt.Sprint(want, " count"), func() bool {
			all, err := f.source.Policy().UsedOf(t.Context(), "proxy", "")
			return err == nil && all[0].Limit.Count()-all[0].Remaining == want
		})
	}
	for i := range int64(4) {
		ctx, stop := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-silent", "1"), 100*time.Millisecond)
		if i%2 == 0 {
			time.AfterFunc(50*time.Millisecond, stop)
		}
		_, _ = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		stop()
		counts(i + 1)
	}
	for i, code := range []codes.Code{codes.OK, codes.NotFound, codes.Unauthenticated} {
		ctx, stop := context.WithCancel(t.Context())
		call, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = call.Header(); err != nil {
			t.Fatal(err)
		}
		stop()
		time.Sleep(50 * time.Millisecond) // the proxy hears that it has left
		answer <- code
		counts(4 + int64(i/2))
	}
	time.Sleep(100 * time.Millisecond) // what is settled is not given back any more
	counts(5)
}

// TestGRPCAnswers looks at the codes of all other answers that the proxy gives itself.
func TestGRPCAnswers(t *testing.T) {
	server := healthy()
	f, conn := grpcFront(t, grpcRules, server)
	client := grpc_health_v1.NewHealthClient(conn)
	check := func(pairs ...string) codes.Code {
		_, err := client.Check(as(t, pairs...), &grpc_health_v1.HealthCheckRequest{})
		if _, ok := status.FromError(err); !ok {
			t.Errorf("no status: %v", err)
		}
		return status.Code(err)
	}
	for _, test := range []struct {
		pairs []string
		want  codes.Code
	}{
		{[]string{"x-who", "banned"}, codes.PermissionDenied},
		{[]string{"x-who", "a", "x-cost", "-1"}, codes.InvalidArgument},
		{[]string{"x-who", "a", "x-who", "b"}, codes.InvalidArgument},
		{[]string{"x-who", "a"}, codes.OK},
	} {
		if got := check(test.pairs...); got != test.want {
			t.Errorf("%q: %v, want %v", test.pairs, got, test.want)
		}
	}
	server.Stop()
	if got := check("x-who", "b"); got != codes.Unavailable {
		t.Errorf("with nobody behind: %v, want Unavailable", got)
	}
	if f.log.String() == "" {
		t.Error("that nobody is behind is not logged")
	}
}

// TestGRPCBidirectional has both sides talk in turn over one call: what one side says arrives while the
// other has not finished. The server ends the call once the client has, or while it may still send.
func TestGRPCBidirectional(t *testing.T) {
	_, conn := grpcFront(t, grpcRules, grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		s.SetTrailer(metadata.Pairs("x-last", "word"))
		for {
			m := new(grpc_health_v1.HealthCheckRequest)
			if err := s.RecvMsg(m); err != nil || m.GetService() == "end" {
				return status.Error(codes.DataLoss, "50% of it: "+m.GetService())
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	})))
	for _, ends := range []string{"", "end"} {
		stream, err := conn.NewStream(as(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/any.Service/Echo")
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"one", "two", "three"} {
			if err := stream.SendMsg(&grpc_health_v1.HealthCheckRequest{Service: word}); err != nil {
				t.Fatal(err)
			}
			got := new(grpc_health_v1.HealthCheckRequest)
			if err := stream.RecvMsg(got); err != nil || got.GetService() != word {
				t.Fatalf("%v (%v), want %s", got, err, word)
			}
		}
		if ends == "" {
			err = stream.CloseSend()
		} else {
			err = stream.SendMsg(&grpc_health_v1.HealthCheckRequest{Service: ends})
		}
		if err != nil {
			t.Fatal(err)
		}
		err = stream.RecvMsg(new(grpc_health_v1.HealthCheckRequest))
		if s := status.Convert(err); s.Code() != codes.DataLoss || s.Message() != "50% of it: "+ends {
			t.Errorf("the server's own status arrives as %v", err)
		}
		if got := stream.Trailer().Get("x-last"); len(got) != 1 || got[0] != "word" {
			t.Errorf("trailer %q", got)
		}
	}
}
