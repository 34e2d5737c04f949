package service

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The addresses of the servers.
const (
	stintGRPC, stintRESP, floorGRPC, redisPort, sharedGRPC = "127.0.0.1:18471", "127.0.0.1:18472", "127.0.0.1:18473", "18474", "127.0.0.1:18475"
)

const benchRules = `{"rules": [{"name": "all", "match": {"domain": "bench"}, "key": ["user"], "limits": ["1000000000/s"]}]}`

// startAll builds stint and starts it, the floor, redis-server, and a stint that
// keeps its limits there.
func startAll(dir string) (all []*process, err error) {
	program, rules := filepath.Join(dir, "stint"), filepath.Join(dir, "rules.json")
	if err := os.WriteFile(rules, []byte(benchRules), 0o600); err != nil {
		return nil, err
	}
	if said, err := exec.Command("go", "build", "-o", program, "github.com/stint-dev/stint/cmd/stint").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building stint: %w: %s", err, said)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{program, "serve", "-c", rules, "--http", "127.0.0.1:0", "--grpc", stintGRPC, "--resp", stintRESP},
		{self, FloorWord},
		{"redis-server", "--port", redisPort, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir},
		{program, "serve", "-c", rules, "--http", "127.0.0.1:0", "--grpc", sharedGRPC, "--store", "redis://127.0.0.1:" + redisPort, "--store-timeout", "1s"},
	} {
		p := &process{exec.Command(args[0], args[1:]...)}
		if err := p.Start(); err != nil {
			return all, fmt.Errorf("%s: %w", args[0], err)
		}
		all = append(all, p)
	}
	for _, address := range []string{stintGRPC, stintRESP, floorGRPC, "127.0.0.1:" + redisPort, sharedGRPC} {
		if err := await(address); err != nil {
			return all, err
		}
	}
	return all, nil
}

// await returns when a process listens at the address.
func await(address string) error {
	var err error
	for range 100 {
		var conn net.Conn
		if conn, err = net.Dial("tcp", address); err == nil {
			return conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// constant answers every request alike, by as much as stint says.
type constant struct {
	pb.UnimplementedRateLimitServiceServer
}

func (constant) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: []*pb.RateLimitResponse_DescriptorStatus{{
		Code: pb.RateLimitResponse_OK, LimitRemaining: 999_999_999, DurationUntilReset: &durationpb.Duration{Seconds: 1},
		CurrentLimit: &pb.RateLimitResponse_RateLimit{Name: "all", RequestsPerUnit: 1_000_000_000, Unit: pb.RateLimitResponse_RateLimit_SECOND},
	}}}, nil
}

// FloorWord as the first argument of the program makes it the floor of Envoy's service.
const FloorWord = "floor"

// Floor serves a constant answer.
func Floor() error {
	ln, err := net.Listen("tcp", floorGRPC)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))))
	pb.RegisterRateLimitServiceServer(s, constant{})
	return s.Serve(ln)
}
