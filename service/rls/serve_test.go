package rls_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint/service/rls"
)

// request is a request of one descriptor.
func request(domain string, pairs ...string) *pb.RateLimitRequest {
	d := &core.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &core.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return &pb.RateLimitRequest{Domain: domain, Descriptors: []*core.RateLimitDescriptor{d}}
}

// What is no request is an error, and the server answers those that follow.
func TestFaults(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{})
	c := client(t, address)
	unit := request("shop", "user", "ann")
	unit.Descriptors[0].Limit = &core.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_UNKNOWN}
	negative := request("shop", "user", "ann")
	negative.Descriptors[0].IsNegativeHits = true
	for _, c2 := range []struct {
		name string
		req  *pb.RateLimitRequest
		want codes.Code
	}{
		{"no domain", request(""), codes.InvalidArgument},
		{"no descriptors", &pb.RateLimitRequest{Domain: "shop"}, codes.InvalidArgument},
		{"nothing", &pb.RateLimitRequest{}, codes.InvalidArgument},
		{"unknown unit", unit, codes.InvalidArgument},
		{"longer than Envoy makes one", request("shop", "user", strings.Repeat("x", rls.MaxMessage)), codes.ResourceExhausted},
		{"giving back", negative, codes.PermissionDenied},
	} {
		if _, err := c.ShouldRateLimit(soon(t), c2.req); status.Code(err) != c2.want {
			t.Errorf("%s: %v, want %v", c2.name, err, c2.want)
		}
	}
	for i, want := range []pb.RateLimitResponse_Code{1, 1, 1, 2} {
		resp, err := c.ShouldRateLimit(soon(t), request("shop", "user", "ann"))
		if err != nil {
			t.Fatal(err)
		}
		st := resp.GetStatuses()[0]
		if resp.GetOverallCode() != want || st.GetCode() != want || st.GetLimitRemaining() != uint32(max(2-i, 0)) || st.GetCurrentLimit().GetRequestsPerUnit() != 3 {
			t.Errorf("call %d afterwards: %v", i, resp)
		}
	}
}

// Any number of different limits may be brought along. That of one key counts on.
func TestManyOverrides(t *testing.T) {
	s := service(t, rls.Options{})
	for i := uint32(0); i <= 3000; i++ {
		req := request("none", "x", fmt.Sprint(i%3000))
		req.Descriptors[0].Limit = &core.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5 + i%3000, Unit: typev3.RateLimitUnit_YEAR}
		resp, err := s.ShouldRateLimit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetStatuses()[0].GetLimitRemaining(); resp.GetOverallCode() != pb.RateLimitResponse_OK || i == 3000 && got != 3 {
			t.Fatalf("limit %d: %v", i, resp)
		}
	}
}

func TestTokens(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{Admit: func(token string) rls.Role {
		switch token {
		case "asks":
			return rls.Client
		case "operates":
			return rls.Operator
		}
		return rls.Nobody
	}})
	conn := dial(t, address)
	c := pb.NewRateLimitServiceClient(conn)
	negative := request("shop", "user", "ann")
	negative.Descriptors[0].IsNegativeHits = true
	for _, one := range []struct {
		shown []string
		req   *pb.RateLimitRequest
		want  codes.Code
	}{
		{nil, request("shop", "user", "ann"), codes.Unauthenticated},
		{[]string{"asks"}, request("shop", "user", "ann"), codes.Unauthenticated},
		{[]string{"Bearer wrong"}, request("shop", "user", "ann"), codes.Unauthenticated},
		{[]string{"Bearer asks", "Bearer asks"}, request("shop", "user", "ann"), codes.Unauthenticated},
		{[]string{"Bearer asks"}, request("shop", "user", "ann"), codes.OK},
		{[]string{"bearer operates"}, request("shop", "user", "ann"), codes.OK},
		{[]string{"Bearer asks"}, negative, codes.PermissionDenied},
		{[]string{"Bearer operates"}, negative, codes.OK},
	} {
		ctx := metadata.NewOutgoingContext(soon(t), metadata.MD{"authorization": one.shown})
		if _, err := c.ShouldRateLimit(ctx, one.req); status.Code(err) != one.want {
			t.Errorf("%q, negative %v: %v, want %v", one.shown, one.req == negative, err, one.want)
		}
	}
	if _, err := healthpb.NewHealthClient(conn).Check(soon(t), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health without a token: %v", err)
	}
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(soon(t))
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without a token: %v", err)
	}
}

func TestReflection(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{})
	stream, err := reflectionpb.NewServerReflectionClient(dial(t, address)).ServerReflectionInfo(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil || !strings.Contains(fmt.Sprint(resp), "envoy.service.ratelimit.v3.RateLimitService") {
		t.Errorf("services: %v %v", resp, err)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
}

// When it stops, the server reports that to the streams that watch its health, ends
// them, and finishes.
func TestStop(t *testing.T) {
	address, stop := start(t, service(t, rls.Options{}), rls.ServeOptions{Notice: 50 * time.Millisecond, Drain: time.Minute})
	conn := dial(t, address)
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		resp, err := healthpb.NewHealthClient(conn).Check(soon(t), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v %v", name, resp, err)
		}
	}
	watch, err := healthpb.NewHealthClient(conn).Watch(soon(t), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := watch.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(resp, err)
	}
	done := make(chan error, 1)
	go func() { done <- stop() }()
	if resp, err := watch.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Error(resp, err)
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("the watch goes on")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A client that pings all the time is cut off.
func TestPings(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{})
	f := dialRaw(t, address)
	for range 20 {
		if f.WritePing(false, [8]byte{}) != nil {
			break
		}
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if away, ok := frame.(*http2.GoAwayFrame); ok {
			if away.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("sent away with %v", away.ErrCode)
			}
			return
		}
	}
}

// Streams that are begun and reset, and what is no HTTP/2 at all, leave the
// server as it was; goleak and the next call say so.
func TestAbuse(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{})
	f := dialRaw(t, address)
	for id := uint32(1); id < 2000; id += 2 {
		// HPACK: :method POST, :scheme http, :path /
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x83, 0x86, 0x84}, EndHeaders: true}) != nil ||
			f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break
		}
	}
	for _, nonsense := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01", "*1\r\n$4\r\nPING\r\n", http2.ClientPreface + "\xff\xff\xff\x00\x00\x00\x00\x00\x00"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, nonsense)
		_ = conn.Close()
	}
	if _, err := client(t, address).ShouldRateLimit(soon(t), request("shop", "user", "ann")); err != nil {
		t.Error(err)
	}
}

// No more streams are open at once than the server takes.
func TestStreams(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{MaxStreams: 7})
	f := dialRaw(t, address)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			if n, ok := settings.Value(http2.SettingMaxConcurrentStreams); !ok || n != 7 {
				t.Errorf("told of %d streams", n)
			}
			return
		}
	}
}

func TestTLS(t *testing.T) {
	ours, theirs := certificate(t), certificate(t)
	known := x509.NewCertPool()
	known.AddCert(theirs.Leaf)
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{TLS: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ours}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known,
	}})
	roots := x509.NewCertPool()
	roots.AddCert(ours.Leaf)
	for name, c := range map[string]struct {
		with []tls.Certificate
		want codes.Code
	}{
		"known":     {[]tls.Certificate{theirs}, codes.OK},
		"a servant": {[]tls.Certificate{ours}, codes.Unavailable},
		"nobody":    {nil, codes.Unavailable},
	} {
		creds := credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: c.with, MinVersion: tls.VersionTLS12})
		_, err := client(t, address, grpc.WithTransportCredentials(creds)).ShouldRateLimit(soon(t), request("shop", "user", "ann"))
		if status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
