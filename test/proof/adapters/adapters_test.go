// Package adapters_test sends crowds through the adapters to frameworks, each over
// the protocols that its clients speak. They are thin, each in its own way: what they
// do with a call that is denied, and how often they ask, only a crowd shows.
package adapters_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/adapters/echolimit"
	"github.com/stint-dev/stint/adapters/fiberlimit"
	"github.com/stint-dev/stint/adapters/ginlimit"
	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/grpclimit/connectlimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/test/proof/crowd"
	"github.com/stint-dev/stint/test/proof/model"
)

// keyed is the field in which a client says who it is.
const keyed = "X-Client"

// limits drain and begin within milliseconds, but for the last.
var limits = []struct {
	text string
	spec model.Spec
}{
	{"1000/s burst 3", model.Spec{Kind: model.GCRA, Count: 1000, Period: int64(time.Second), Burst: 3}},
	{"20/20ms fixed_window", model.Spec{Kind: model.Fixed, Count: 20, Period: int64(20 * time.Millisecond)}},
	{"10/10ms sliding_log", model.Spec{Kind: model.Log, Count: 10, Period: int64(10 * time.Millisecond)}},
	{"30/1h", model.Spec{Kind: model.GCRA, Count: 30, Period: int64(time.Hour), Burst: 30}},
}

// TestEnvelopeAdapters races takes through every adapter in the workspace, with more
// threads than cores, and holds what passed to the limit's envelope.
func TestEnvelopeAdapters(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	rounds := 1000
	if race.On { // a call takes thirty times as long, and what races is seen in any
		rounds = 200
	}
	for i, e := range []struct {
		name string
		open func(t *testing.T, text string) crowd.Take
	}{
		{"grpclimit", func(t *testing.T, text string) crowd.Take { return byCall(serveGRPC(t, calls(t, text))) }},
		{"grpclimit of rules", func(t *testing.T, text string) crowd.Take { return byCall(serveGRPC(t, rules(t, text))) }},
		{"grpclimit, streams", func(t *testing.T, text string) crowd.Take { return byStream(serveGRPC(t, calls(t, text))) }},
		{"connectlimit", func(t *testing.T, text string) crowd.Take { return byConnect(t, calls(t, text)) }},
		{"connectlimit, gRPC-Web", func(t *testing.T, text string) crowd.Take { return byConnect(t, calls(t, text), connect.WithGRPCWeb()) }},
		{"echolimit", byEcho},
		{"ginlimit", byGin},
		{"fiberlimit", byFiber},
	} {
		t.Run(e.name+" in rounds", func(t *testing.T) { crowd.Rounds(t, rounds, e.open(t, "1/1h")) })
		for j, limit := range limits {
			for k, goroutines := range []int{2, 1000} {
				if (testing.Short() || race.On) && (i+j+k)%3 != 0 {
					continue // each limit with each crowd, at some adapter
				}
				t.Run(fmt.Sprint(e.name, " ", limit.text, " by ", goroutines), func(t *testing.T) {
					crowd.Run(t, limit.spec, goroutines, 60*time.Millisecond, e.open(t, limit.text))
				})
			}
		}
	}
}

func limiter(t *testing.T, text string) *stint.Limiter {
	t.Helper()
	limit := made.Limit(t, text)
	return made.Limiter(t, memstore.New(memstore.Options{}), "entry", limit)
}

// requests guards requests of HTTP.
func requests(t *testing.T, text string) func(http.Handler) http.Handler {
	t.Helper()
	guard, err := httplimit.New(limiter(t, text), httplimit.HeaderKey(keyed), httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// calls guards calls of gRPC.
func calls(t *testing.T, text string) *grpclimit.Server {
	t.Helper()
	guard, err := grpclimit.NewServer(limiter(t, text), grpclimit.MetadataKey(keyed), grpclimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// rules guards calls of gRPC by a rules file.
func rules(t *testing.T, text string) *grpclimit.Server {
	t.Helper()
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, fmt.Sprintf(`{"rules": [{"name": "entry", "key": ["header.x-client"], "limits": [%q]}]}`, text)), policy.Options{})
	guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// A testServer answers one call, and one message of a stream.
type testServer struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (testServer) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return new(grpc_testing.Empty), nil
}

func (testServer) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	return stream.Send(new(grpc_testing.StreamingOutputCallResponse))
}

func serveGRPC(t *testing.T, guard *grpclimit.Server) (*testing.T, grpc_testing.TestServiceClient) {
	t.Helper()
	ln := listen(t)
	s := grpc.NewServer(guard.Unary(), guard.Stream())
	grpc_testing.RegisterTestServiceServer(s, testServer{})
	serve(t, func() error { return s.Serve(ln) }, s.Stop)
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return t, grpc_testing.NewTestServiceClient(conn)
}

func byCall(t *testing.T, c grpc_testing.TestServiceClient) crowd.Take {
	return func(key string) (bool, error) {
		_, err := c.EmptyCall(metadata.AppendToOutgoingContext(t.Context(), keyed, key), new(grpc_testing.Empty))
		return passed(err)
	}
}

func byStream(t *testing.T, c grpc_testing.TestServiceClient) crowd.Take {
	return func(key string) (bool, error) {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), keyed, key))
		defer cancel()
		stream, err := c.FullDuplexCall(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		return passed(err)
	}
}

// passed says what the error of a call means.
func passed(err error) (bool, error) {
	if status.Code(err) == codes.ResourceExhausted {
		return false, nil
	}
	return err == nil, err
}

func byConnect(t *testing.T, guard *grpclimit.Server, options ...connect.ClientOption) crowd.Take {
	const call = "/test.v1.Echo/Unary"
	s := httptest.NewServer(connect.NewUnaryHandler(call, func(_ context.Context, r *connect.Request[grpc_testing.Empty]) (*connect.Response[grpc_testing.Empty], error) {
		return connect.NewResponse(r.Msg), nil
	}, connect.WithInterceptors(connectlimit.Interceptor(guard))))
	t.Cleanup(s.Close)
	c := connect.NewClient[grpc_testing.Empty, grpc_testing.Empty](&http.Client{Transport: transport(t)}, s.URL+call, options...)
	return func(key string) (bool, error) {
		r := connect.NewRequest(new(grpc_testing.Empty))
		r.Header().Set(keyed, key)
		_, err := c.CallUnary(t.Context(), r)
		if connect.CodeOf(err) == connect.CodeResourceExhausted {
			return false, nil
		}
		return err == nil, err
	}
}

func byEcho(t *testing.T, text string) crowd.Take {
	e := echo.New()
	e.Use(echolimit.Guard(requests(t, text)))
	e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return get(t, s.URL)
}

func byGin(t *testing.T, text string) crowd.Take {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(ginlimit.Guard(requests(t, text)))
	e.GET("/", func(c *gin.Context) { c.Status(http.StatusOK) })
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return get(t, s.URL)
}

func byFiber(t *testing.T, text string) crowd.Take {
	app := fiber.New()
	app.Use("/*", fiberlimit.Guard(requests(t, text)))
	app.Get("/", func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	ln := listen(t)
	serve(t, func() error { return app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }, func() {
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return get(t, "http://"+ln.Addr().String())
}

// get asks over HTTP.
func get(t *testing.T, address string) crowd.Take {
	return crowd.HTTP(t, transport(t), func(key string) (*http.Request, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err == nil {
			r.Header.Set(keyed, key)
		}
		return r, err
	})
}

// transport has a hundred connections at most: what races here is in the server, and a
// crowd waits for them.
func transport(t *testing.T) *http.Transport {
	transport := &http.Transport{MaxConnsPerHost: 100, MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln := freeport.Listen(t)
	return ln
}

// serve runs a server until the test ends.
func serve(t *testing.T, run func() error, stop func()) {
	done := make(chan error, 1)
	go func() { done <- run() }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
