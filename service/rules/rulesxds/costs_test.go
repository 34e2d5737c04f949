package rulesxds

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestTooLargeCosts has domains of a few megabytes that as rules are far too large for a file, beside
// one that changes: they are refused without being made.
func TestTooLargeCosts(t *testing.T) {
	one := strings.Repeat("a", 8100)
	for why, large := range map[string]func(i int) *ratelimit.RateLimitDescriptor{
		"more than 131072 names or 8388608 bytes": func(i int) *ratelimit.RateLimitDescriptor { return entry("k", one[:8100-i]+"*", 3) },
		"more than 33554432 bytes": func(i int) *ratelimit.RateLimitDescriptor {
			d := entry("k", fmt.Sprint(i, one), 3)
			for n := range 40 {
				d.Descriptors = append(d.Descriptors, entry("l", fmt.Sprint(n), 4))
			}
			return d
		},
	} {
		t.Run(why, func(t *testing.T) {
			all := make([]*ratelimit.RateLimitDescriptor, 500)
			for i := range all {
				all[i] = large(i)
			}
			resources := []*anypb.Any{resource(t, "large", all...), resource(t, "small", entry("k", "", 72))}
			s := quiet()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			answer := s.take(message("1", resources...))
			runtime.ReadMemStats(&after)
			if refused := answer.GetErrorDetail().GetMessage(); !strings.Contains(refused, `domain "large", of `) || !strings.Contains(refused, why) || !strings.Contains(string(s.held.Document), "72/1d") {
				t.Errorf("refused: %.300s", refused)
			}
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 1000 {
				t.Errorf("%d MiB allocated for a message of %d", took, len(resources[0].GetValue())>>20)
			}
		})
	}
}

// A large is a control plane whose configuration is larger than a message may be.
type large struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

func (large) StreamAggregatedResources(s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return s.Send(&discovery.DiscoveryResponse{TypeUrl: typeURL, Resources: []*anypb.Any{{TypeUrl: typeURL, Value: make([]byte, maxMessage)}}})
}

// TestLargeMessage: a message that is too large is named so, at the start in the log, since nobody has
// another configuration then.
func TestLargeMessage(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, large{})
	go func() { _ = server.Serve(ln) }() // until it is stopped
	defer server.Stop()
	read, write := io.Pipe()
	s, err := Open("xds://"+ln.Addr().String(), nil, slog.New(slog.NewTextHandler(write, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer s.Close()
	line, err := bufio.NewReader(read).ReadString('\n')
	if want := `no configuration yet" source=xds://` + ln.Addr().String() + ` err="the configuration is too large: a message may have at most 33554432 bytes: grpc: received message larger than max`; err != nil || !strings.Contains(line, want) {
		t.Errorf("%v, the log is %swant %s", err, line, want)
	}
}
