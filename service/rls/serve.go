package rls

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/stint-dev/stint/service/drain"
	"github.com/stint-dev/stint/service/observe"
)

// ServeOptions are the options of [Serve]. The zero value suits most programs.
type ServeOptions struct {
	// TLS encrypts connections. By default they are not encrypted.
	TLS *tls.Config
	// Admit returns the role of a token. The default lets every caller ask, and none refund.
	Admit func(token string) Role
	// Notice is how long calls are still accepted after a stop, while health checks report that the
	// server does not serve. The default value is 0.
	Notice time.Duration
	// Drain is how long running calls may then take to finish. The default value is 10 s.
	Drain time.Duration
	// Read is how long a call for a decision may take. Nearly all of that is the time in which the
	// client sends it. The default value is 10 s.
	Read time.Duration
	// MaxStreams is how many calls a connection may have at once; further calls wait in the client.
	// The default value is 1,000.
	MaxStreams uint32
	// MinPing is the least time between two pings of a client; a client that pings more often is
	// cut off. The default value is 10 s, the shortest interval that Envoy and gRPC clients should
	// use.
	MinPing time.Duration
	// Enter counts a call of a peer, "address:port", until leave is called, or says why the call is
	// refused. watch marks a watch of health, which does not end. The default counts nothing.
	Enter func(peer string, watch bool) (leave func(), why string)
}

func (o *ServeOptions) fill() {
	o.Drain = cmp.Or(o.Drain, 10*time.Second)
	o.Read = cmp.Or(o.Read, 10*time.Second)
	o.MaxStreams = cmp.Or(o.MaxStreams, 1000)
	if o.Enter == nil {
		o.Enter = func(string, bool) (func(), string) { return func() {}, "" }
	}
	o.MinPing = cmp.Or(o.MinPing, 10*time.Second)
}

// healthNames are the services that health checks may name: the server, this service, and the name
// of the reference service.
var healthNames = []string{"", pb.RateLimitService_ServiceDesc.ServiceName, "ratelimit"}

const (
	// maxHeaders bounds the metadata of a call, in bytes. Envoy's tracers pass on what a client has
	// written in its headers, up to the most that Envoy accepts.
	maxHeaders = 1 << 20
	// handshake is how long a client may take to connect, TLS included.
	handshake = 5 * time.Second
	// quiet is how long a client may be silent before it is pinged, and patience how long the
	// answer may take.
	quiet    = 2 * time.Minute
	patience = 20 * time.Second
)

// Serve serves on ln until ctx is done. Then health checks report that, calls are accepted for
// Notice, and running calls have Drain to finish. Serve ends the remaining calls, closes ln, and
// returns nil if no call was left.
func Serve(ctx context.Context, ln net.Listener, s *Service, o ServeOptions) error {
	o.fill()
	alive := health.NewServer()
	for _, name := range healthNames {
		alive.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	stopping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	server := o.server(stopping, s.o.Observer)
	pb.RegisterRateLimitServiceServer(server, s)
	healthpb.RegisterHealthServer(server, alive)
	reflection.Register(server)

	stopped, queue := make(chan error, 1), drain.NewListener(ln)
	go func() { stopped <- server.Serve(queue) }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
	}
	alive.Shutdown()
	select {
	case err := <-stopped:
		return err
	case <-time.After(o.Notice):
	}
	ended := queue.Empty()
	if ended {
		<-stopped
	}
	release()
	err := stop(server, o.Drain)
	if !ended {
		<-stopped
	}
	return err
}

// server returns a server without services.
func (o *ServeOptions) server(stopping context.Context, observer *observe.Observer) *grpc.Server {
	entry := &entry{o, observer}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(o.MaxStreams),
		grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))),
		grpc.ConnectionTimeout(handshake),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.MinPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: quiet, Timeout: patience}),
		grpc.StreamInterceptor(endWith(stopping)),
		grpc.InTapHandle(entry.enter),
	}
	secured := insecure.NewCredentials()
	if o.TLS != nil {
		secured = credentials.NewTLS(o.TLS)
	}
	return grpc.NewServer(append(options, grpc.Creds(&arrivals{TransportCredentials: secured}))...)
}

// stop lets running calls finish, for at most the given time.
func stop(server *grpc.Server, within time.Duration) error {
	done := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(within):
	}
	server.Stop()
	<-done
	return errors.New("not all calls had finished when the drain was over")
}
