package service

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The connections of a RESP client, and the concurrent calls of a gRPC client.
const (
	conns = 8
	calls = 16
	many  = 128 // where a store is shared
)

// rivals returns who is asked what: first memory and the shared store.
func rivals(processes []*process) (all []*rival, err error) {
	stint, bare, redis, sharing := processes[0], processes[1], processes[2], processes[3]
	for _, one := range []struct {
		name, address string
		calls         int
		servers       []*process
	}{
		{"stint, ShouldRateLimit, 128 calls", stintGRPC, many, []*process{stint}},
		{"the same, shared store, with Redis", sharedGRPC, many, []*process{sharing, redis}},
		{"stint, ShouldRateLimit", stintGRPC, calls, []*process{stint}},
		{"grpc-go, a constant answer", floorGRPC, calls, []*process{bare}},
	} {
		conn, err := grpc.NewClient(one.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		client := pb.NewRateLimitServiceClient(conn)
		all = append(all, &rival{name: one.name, servers: one.servers, per: 1, drive: func(stop <-chan struct{}) ([]time.Duration, error) {
			return askEnvoy(client, one.calls, stop)
		}})
	}
	sha, err := loadScript()
	if err != nil {
		return nil, err
	}
	for _, pipeline := range []int{1, 16} {
		for _, one := range []struct {
			name, address, command string
			server                 *process
			lines                  int // of an answer
		}{
			{"stint, CL.THROTTLE", stintRESP, command("CL.THROTTLE", "user:%04d", "1000000000", "1000000000", "1"), stint, 6},
			{"redis-server, INCR", "127.0.0.1:" + redisPort, command("INCR", "user:%04d"), redis, 1},
			{"redis-server, EVALSHA of return 1", "127.0.0.1:" + redisPort, command("EVALSHA", sha, "1", "user:%04d"), redis, 1},
		} {
			name := fmt.Sprintf("%s, pipeline %d", strings.Replace(one.name, " of return 1", "", 1), pipeline)
			all = append(all, &rival{name: name, servers: []*process{one.server}, per: pipeline, drive: func(stop <-chan struct{}) ([]time.Duration, error) {
				return together(func(n int) ([]time.Duration, error) {
					return askRESP(one.address, strings.Repeat(fmt.Sprintf(one.command, n), pipeline), one.lines*pipeline, stop)
				}, conns)
			}})
		}
	}
	return all, nil
}

// together runs a function the given number of times at once, and joins the results.
func together(do func(n int) ([]time.Duration, error), times int) (all []time.Duration, failed error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n := range times {
		wg.Go(func() {
			took, err := do(n)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return all, failed
}

func askEnvoy(client pb.RateLimitServiceClient, calls int, stop <-chan struct{}) ([]time.Duration, error) {
	return together(func(n int) (took []time.Duration, err error) {
		req := &pb.RateLimitRequest{Domain: "bench", Descriptors: []*ratelimit.RateLimitDescriptor{{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprintf("user:%04d", n)}, {Key: "path", Value: "/api/orders"}},
		}}}
		for {
			select {
			case <-stop:
				return took, nil
			default:
			}
			began := time.Now()
			resp, err := client.ShouldRateLimit(context.Background(), req)
			if err != nil {
				return nil, err
			}
			if len(resp.GetStatuses()) != 1 || resp.GetOverallCode() != pb.RateLimitResponse_OK {
				return nil, fmt.Errorf("answered %v", resp)
			}
			took = append(took, time.Since(began))
		}
	}, calls)
}

// command writes a command of RESP; %04d in it is filled in later.
func command(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(strings.ReplaceAll(a, "%04d", "0000")), a)
	}
	return b.String()
}

// askRESP sends the same over one connection until stop is closed.
func askRESP(address, send string, lines int, stop <-chan struct{}) (took []time.Duration, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // all answers were read
	r := bufio.NewReader(conn)
	for {
		select {
		case <-stop:
			return took, nil
		default:
		}
		began := time.Now()
		if _, err := conn.Write([]byte(send)); err != nil {
			return nil, err
		}
		for range lines {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return nil, err
			}
			if bytes.HasPrefix(line, []byte("-")) {
				return nil, fmt.Errorf("answered %s", line)
			}
		}
		took = append(took, time.Since(began))
	}
}

// loadScript has redis-server keep the least of scripts, and returns its name.
func loadScript() (string, error) {
	conn, err := net.Dial("tcp", "127.0.0.1:"+redisPort)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // the answer was read
	if _, err := conn.Write([]byte(command("SCRIPT", "LOAD", "return 1"))); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	if _, err := r.ReadString('\n'); err != nil {
		return "", err
	}
	sha, err := r.ReadString('\n')
	return strings.TrimSpace(sha), err
}
