package proxy_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
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

// grpcFront is a grpc-go server behind the proxy, and a grpc-go client in front
// of it.
func grpcFront(t *testing.T) (*front, *grpc.Server, *health.Server, grpc_health_v1.HealthClient) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, state := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	done := make(chan error)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	f := start(t, &url.URL{Scheme: "http", Host: ln.Addr().String()}, time.Second, yaml(t, grpcRules), httplimit.ClientIP{})
	conn, err := grpc.NewClient("passthrough:///"+f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return f, server, state, grpc_health_v1.NewHealthClient(conn)
}

func as(t *testing.T, pairs ...string) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// TestGRPCUnary calls through the proxy until it is denied: the client sees
// RESOURCE_EXHAUSTED, when to come back and which limit denied.
func TestGRPCUnary(t *testing.T) {
	_, _, _, client := grpcFront(t)
	ctx := as(t, "x-who", "anna")
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
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan codes.Code)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if md, _ := metadata.FromIncomingContext(s.Context()); len(md.Get("x-silent")) > 0 {
			<-s.Context().Done()
			return status.Error(codes.Unauthenticated, "no")
		}
		_ = s.RecvMsg(&grpc_health_v1.HealthCheckRequest{})
		_ = s.SendHeader(nil)
		return status.Error(<-answer, "")
	}))
	go func() { _ = server.Serve(ln) }() // it ends with Stop
	t.Cleanup(server.Stop)
	f := start(t, &url.URL{Scheme: "http", Host: ln.Addr().String()}, time.Second, yaml(t, rules), httplimit.ClientIP{})
	conn, err := grpc.NewClient("passthrough:///"+f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
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
	f, server, _, client := grpcFront(t)
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

// TestGRPCStream keeps a stream open while the server sends, and ends it from
// the client's side; opening one more than the rules allow is denied.
func TestGRPCStream(t *testing.T) {
	_, _, state, client := grpcFront(t)
	ctx, end := context.WithCancel(as(t, "x-who", "anna"))
	stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{
		grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN,
		grpc_health_v1.HealthCheckResponse_SERVING,
		grpc_health_v1.HealthCheckResponse_NOT_SERVING,
	} {
		if want != grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
			state.SetServingStatus("s", want)
		}
		if got, err := stream.Recv(); err != nil || got.GetStatus() != want {
			t.Fatalf("%v (%v), want %v", got, err, want)
		}
	}
	end()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("after the end: %v", err)
	}
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		ctx, end := context.WithCancel(as(t, "x-who", "anna"))
		stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
		end()
	}
}

// TestGRPCBidirectional has both sides talk in turn over one call: what one
// side says arrives while the other has not finished.
func TestGRPCBidirectional(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		s.SetTrailer(metadata.Pairs("x-last", "word"))
		for {
			m := new(grpc_health_v1.HealthCheckRequest)
			if err := s.RecvMsg(m); err != nil {
				return status.Error(codes.DataLoss, "50% of it: "+m.GetService())
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}))
	done := make(chan error)
	go func() { done <- server.Serve(ln) }()
	defer func() {
		server.Stop()
		<-done
	}()
	f := start(t, &url.URL{Scheme: "http", Host: ln.Addr().String()}, time.Second, yaml(t, grpcRules), httplimit.ClientIP{})
	conn, err := grpc.NewClient("passthrough:///"+f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
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
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(new(grpc_health_v1.HealthCheckRequest))
	if s := status.Convert(err); s.Code() != codes.DataLoss || s.Message() != "50% of it: " {
		t.Errorf("the server's own status arrives as %v", err)
	}
	if got := stream.Trailer().Get("x-last"); len(got) != 1 || got[0] != "word" {
		t.Errorf("trailer %q", got)
	}
}

// TestHTTP2 speaks HTTP/2 in the clear, and is passed on over HTTP/1.1.
func TestHTTP2(t *testing.T) {
	var behind string
	f := serve(t, func(_ http.ResponseWriter, r *http.Request) { behind = r.Proto }, time.Minute, "ip", "1/h")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Transport{Protocols: protocols}
	defer h2.CloseIdleConnections()
	f.client = &http.Client{Transport: h2}
	for _, want := range []int{200, 429} {
		if got := f.get(t, "/"); got.StatusCode != want || got.ProtoMajor != 2 {
			t.Errorf("answered %d over %s, want %d over HTTP/2", got.StatusCode, got.Proto, want)
		}
	}
	if behind != "HTTP/1.1" {
		t.Errorf("asked over %s", behind)
	}
}

// TestGRPCServerEnds: a stream that the server ends while its client may still send ends for the client.
func TestGRPCServerEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		m := new(grpc_health_v1.HealthCheckResponse)
		if err := s.RecvMsg(m); err != nil {
			return err
		}
		if err := s.SendMsg(m); err != nil {
			return err
		}
		return status.Error(codes.Unauthenticated, "no")
	}))
	go func() { _ = server.Serve(ln) }() // it ends with Stop
	t.Cleanup(server.Stop)
	f := start(t, &url.URL{Scheme: "http", Host: ln.Addr().String()}, time.Second, yaml(t, "rules: [{name: proxy, key: [], limits: 9/d}]"), httplimit.ClientIP{})
	conn, err := grpc.NewClient("passthrough:///"+f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/a.B/C")
	if err != nil {
		t.Fatal(err)
	}
	m := new(grpc_health_v1.HealthCheckResponse)
	if err := s.SendMsg(m); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(m); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(m); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}
