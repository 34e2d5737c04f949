package main_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	control "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// A gateway is what Envoy Gateway is to its rate limit service: a control plane that
// wants certificates, the files that it mounts, and Envoy.
type gateway struct {
	t       testing.TB
	dir     string // of tls.crt, tls.key and ca.crt
	serial  int64
	address string // of the control plane
	service string // of the rate limit service
	cache   cache.SnapshotCache
	refused chan string
}

// rotate writes other certificates, which sign themselves.
func (g *gateway) rotate() {
	g.t.Helper()
	g.serial++
	writeCertificate(g.t, g.dir+"/tls.crt", g.dir+"/tls.key", g.serial)
	text := disk.Read(g.t, g.dir+"/tls.crt")
	disk.Write(g.t, g.dir+"/ca.crt", string(text))
}

// tls is what both sides of a connection show and trust.
func (g *gateway) tls() *tls.Config {
	g.t.Helper()
	pair, err := tls.LoadX509KeyPair(g.dir+"/tls.crt", g.dir+"/tls.key")
	if err != nil {
		g.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// serve runs the control plane until stop is called.
func (g *gateway) serve() (stop func()) {
	g.t.Helper()
	ln, err := net.Listen("tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(g.tls())))
	discovery.RegisterAggregatedDiscoveryServiceServer(server, control.NewServer(g.t.Context(), g.cache, control.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			if r.GetErrorDetail() != nil {
				g.refused <- r.GetErrorDetail().GetMessage()
			}
			return nil
		},
	}))
	go func() { _ = server.Serve(ln) }() // until it is stopped
	g.t.Cleanup(server.Stop)
	return server.Stop
}

// put configures one limit for each client of a domain, in one of two resources.
func (g *gateway) put(version, domain string, count uint32, unit ratelimit.RateLimitUnit) {
	g.t.Helper()
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: {
		&ratelimit.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{
			Key: "route", Value: "route", Descriptors: []*ratelimit.RateLimitDescriptor{
				{Key: "rule-0-match-0", RateLimit: &ratelimit.RateLimitPolicy{Unit: unit, RequestsPerUnit: count}},
			},
		}}},
		&ratelimit.RateLimitConfig{Name: domain + "-more", Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{Key: "other"}}},
	}})
	if err == nil {
		err = g.cache.SetSnapshot(g.t.Context(), "envoy-ratelimit", snapshot)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// ask asks over a connection of its own; limited reports whether a limit was found.
func (g *gateway) ask(config *tls.Config, domain string) (code pb.RateLimitResponse_Code, limited bool, err error) {
	conn, err := grpc.NewClient(g.service, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close() // it has answered
	ctx, stop := context.WithTimeout(g.t.Context(), patience)
	defer stop()
	answer, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: domain, Descriptors: []*core.RateLimitDescriptor{
		{Entries: []*core.RateLimitDescriptor_Entry{{Key: "route", Value: "route"}, {Key: "rule-0-match-0", Value: "ada"}}},
	}})
	if err != nil {
		return 0, false, err
	}
	return answer.GetOverallCode(), answer.GetStatuses()[0].GetCurrentLimit() != nil, nil
}

// until asks until a domain has a limit.
func (g *gateway) until(domain string) {
	g.t.Helper()
	for g.t.Context().Err() == nil {
		if _, limited, err := g.ask(g.tls(), domain); err == nil && limited {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// startGateway starts the program as Envoy Gateway starts envoyproxy/ratelimit, before
// there is a control plane. Unless it is to start without one, it listens nowhere yet.
func startGateway(t testing.TB, without bool) (g *gateway, p *running, health, metrics string) {
	t.Helper()
	g = &gateway{t: t, dir: t.TempDir(), address: freeport.Addr(t), service: freeport.Addr(t), cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil), refused: make(chan string, 1000)}
	g.rotate()
	redis := startRedis(t, "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, grpcPort, _ := net.SplitHostPort(g.service)
	health, metrics = freeport.Addr(t), freeport.Addr(t)
	_, healthPort, _ := net.SplitHostPort(health)
	process := exec.Command(self)
	process.Args = []string{"/bin/ratelimit"}
	process.Env = append(os.Environ(), "STINT_TEST_MAIN=1", storePatience,
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false", "MERGE_DOMAIN_CONFIG=true",
		"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+g.address, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+g.dir+"/tls.crt", "GRPC_SERVER_TLS_KEY="+g.dir+"/tls.key", "GRPC_SERVER_TLS_CA_CERT="+g.dir+"/ca.crt",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+g.dir+"/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+g.dir+"/tls.key",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+g.dir+"/ca.crt", fmt.Sprint("FORCE_START_WITHOUT_INITIAL_CONFIG=", without),
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.address, "USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+metrics, "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "PORT="+healthPort, "GRPC_PORT="+grpcPort)
	p = begin(t, "ratelimit", process)
	if !without {
		return g, p, health, metrics
	}
	await.Until(t, "it listens", func() bool {
		conn, err := net.Dial("tcp", health)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return g, p, health, metrics
}

// TestRatelimitWaits starts the program longer before its control plane than other sources
// of rules may take. It waits, as envoyproxy/ratelimit does, and goes by what comes.
func TestRatelimitWaits(t *testing.T) {
	need.Time(t)
	g, p, health, _ := startGateway(t, false)
	select {
	case err := <-p.ended:
		t.Fatalf("ended without a control plane: %v", err)
	case <-time.After(11 * time.Second):
	}
	if conn, err := net.Dial("tcp", health); err == nil {
		_ = conn.Close()
		t.Error("it listens before it has a configuration")
	}
	g.put("1", "first", 2, ratelimit.RateLimitUnit_DAY)
	g.serve()
	g.until("first")
}

// TestRatelimit starts the program as Envoy Gateway starts envoyproxy/ratelimit: by its
// name, its environment and nothing else. The control plane changes, lies, goes and comes
// back, and certificates are rotated.
func TestRatelimit(t *testing.T) {
	g, p, health, metrics := startGateway(t, true)
	if status, text := p.call("GET", "http://"+health+"/healthcheck", "", nil); status != http.StatusOK {
		t.Errorf("healthy before there is a control plane: %d %s", status, text)
	}
	if _, _, err := g.ask(g.tls(), "first"); err == nil {
		t.Error("a decision without a configuration")
	}
	g.put("1", "first", 2, ratelimit.RateLimitUnit_DAY)
	stop := g.serve()
	g.until("first")
	if code, _, err := g.ask(g.tls(), "first"); err != nil || code != pb.RateLimitResponse_OK {
		t.Errorf("the second of two: %v %v", code, err)
	}
	if code, _, err := g.ask(g.tls(), "first"); err != nil || code != pb.RateLimitResponse_OVER_LIMIT {
		t.Errorf("the third of two: %v %v", code, err)
	}
	stranger := g.tls()
	stranger.Certificates = nil
	if _, _, err := g.ask(stranger, "first"); err == nil {
		t.Error("a client without a certificate may ask")
	}
	if status, text := p.call("GET", "http://"+metrics+"/metrics", "", nil); status != http.StatusOK || !strings.Contains(text, "stint_") {
		t.Errorf("metrics: %d %.200s", status, text)
	}

	g.put("2", "second", 1, ratelimit.RateLimitUnit_MONTH)
	g.until("second")
	g.put("3", "second", 1, ratelimit.RateLimitUnit_UNKNOWN) // which keeps the limit that it had
	if reason := <-g.refused; !strings.Contains(reason, "no unit") {
		t.Errorf("refused: %s", reason)
	}
	old := g.tls()
	stop()
	if code, _, err := g.ask(old, "second"); err != nil || code != pb.RateLimitResponse_OVER_LIMIT {
		t.Errorf("without a control plane: %v %v", code, err)
	}

	g.rotate()
	g.put("4", "fourth", 1, ratelimit.RateLimitUnit_YEAR)
	g.serve()
	g.until("fourth")
	if _, _, err := g.ask(old, "fourth"); err == nil {
		t.Error("the client's certificate of before is still trusted")
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// TestRatelimitRefuses has environments that this program cannot keep.
func TestRatelimitRefuses(t *testing.T) {
	for env, want := range map[string]string{
		"CONFIG_TYPE=FILE": "stint import envoy-ratelimit",
		"SHADOW_MODE=true": "SHADOW_MODE",
		"QUOTA_MODE=t":     "QUOTA_MODE",
		"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true":            "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: denied hits",
		"BACKEND_TYPE=memcache":                                   "want redis",
		"GRPC_SERVER_USE_TLS=true":                                "GRPC_SERVER_TLS_CERT",
		"GRPC_CLIENT_TLS_SAN=envoy":                               "GRPC_CLIENT_TLS_CACERT",
		"REDIS_TYPE=SENTINEL":                                     "Sentinels",
		"REDIS_AUTH=secret REDIS_URL=redis://:secret@127.0.0.1:1": "REDIS_AUTH",
		"REDIS_TYPE=OTHER":                                        "want SINGLE",
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true":               "server_name",
		"REDIS_URL=redis://:secret@127.0.0.1:1?nosuch=1":          "no parameter",
		"CONFIG_GRPC_XDS_SERVER_URL=nowhere":                      "want a URL",
		"PORT=many":                                               "PORT",
		"USE_STATSD=yes":                                          "want true or false",
	} {
		t.Run(env, func(t *testing.T) {
			for _, one := range []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "REDIS_URL=127.0.0.1:1", "REDIS_SOCKET_TYPE=tcp"} {
				env = one + " " + env
			}
			for one := range strings.FieldsSeq(env) { // the case's own come last
				name, value, _ := strings.Cut(one, "=")
				t.Setenv(name, value)
			}
			said := session{args: []string{"ratelimit"}}.run()
			if !strings.Contains(said, want) || strings.Contains(said, "secret") {
				t.Errorf("said %q, want %q", said, want)
			}
		})
	}
}

// TestRatelimitLeavesOut has settings that change what envoyproxy/ratelimit answers: a warning names
// each, and none that is as usual.
func TestRatelimitLeavesOut(t *testing.T) {
	for env, warned := range map[string]bool{"LIMIT_RESET_HEADER=x-reset": true, "RESPONSE_DYNAMIC_METADATA=1": true, "REDIS_PERSECOND=true": true, "USE_STATSD=true": true,
		"REDIS_TIMEOUT=1s": true, "LIMIT_LIMIT_HEADER=RateLimit-Limit": false, "RESPONSE_DYNAMIC_METADATA=F": false, "NEAR_LIMIT_RATIO=0.5": false} {
		t.Run(env, func(t *testing.T) {
			name, _, _ := strings.Cut(env, "=")
			for one := range strings.FieldsSeq("CONFIG_TYPE=GRPC_XDS_SOTW STINT_TLS_CERT=none.pem " + env) {
				name, value, _ := strings.Cut(one, "=")
				t.Setenv(name, value)
			}
			if said := (session{args: []string{"ratelimit"}}).run(); strings.Contains(said, "setting="+name) != warned {
				t.Errorf("said %q", said)
			}
		})
	}
}

// TestRatelimitTakes has values that envoyproxy/ratelimit takes. What is then refused is a
// setting of stint's own.
func TestRatelimitTakes(t *testing.T) {
	for _, env := range []string{"LOG_FORMAT=", "LOG_FORMAT=JSON", "LOG_FORMAT=logfmt", "CACHE_KEY_PREFIX=-x", "BACKEND_TYPE=", "HOST=",
		"USE_STATSD=t", "USE_STATSD=False", "LIMIT_RESPONSE_HEADERS_ENABLED=T", "REDIS_PERSECOND=f", "SHADOW_MODE=FALSE", "REDIS_TLS=0", "GRPC_SERVER_TLS_CERT=unused.pem GRPC_SERVER_TLS_KEY=unused.pem",
		"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=f", "MERGE_DOMAIN_CONFIG=true", "LIMIT_RESET_HEADER=x-reset", "RESPONSE_DYNAMIC_METADATA="} {
		t.Run(env, func(t *testing.T) {
			for _, one := range []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "REDIS_URL=127.0.0.1:1", "REDIS_SOCKET_TYPE=tcp", "STINT_TLS_CERT=none.pem"} {
				env = one + " " + env
			}
			for one := range strings.FieldsSeq(env) {
				name, value, _ := strings.Cut(one, "=")
				t.Setenv(name, value)
			}
			if said := (session{args: []string{"ratelimit"}}).run(); !strings.Contains(said, "--tls-cert: goes with --tls-key") {
				t.Errorf("said %q", said)
			}
		})
	}
}
