package main_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// farAway returns the address of a link to a server whose answers arrive so much later.
func farAway(t *testing.T, server string, later time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server)
			if err != nil {
				c.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(s, c)
				s.Close()
			}()
			go late(c, s, later)
		}
	}()
	return l.Addr().String()
}

// late copies what arrives, each piece as much later.
func late(to net.Conn, from io.Reader, later time.Duration) {
	type piece struct {
		due  time.Time
		text []byte
	}
	line := make(chan piece, 1024)
	go func() {
		defer to.Close()
		for p := range line {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.text)
		}
	}()
	defer close(line)
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if n > 0 {
			line <- piece{time.Now().Add(later), b[:n]}
		}
		if err != nil {
			return
		}
	}
}

// TestServeDeadlines has Envoy's calls end before the store would: with the server a
// little farther away than the caller waits, and with one that is stopped. Each rule
// decides in time, as it says. Times are ten times those of a real Envoy, for machines
// that have other things to do.
func TestServeDeadlines(t *testing.T) {
	const rules = `
attributes: [domain, user]
rules:
  - {name: local, match: {domain: local}, key: [user], limits: 10/h}
  - {name: closed, match: {domain: closed}, key: [user], limits: 10/h, on_store_failure: closed}
  - {name: open, match: {domain: open}, key: [user], limits: 1000/h, on_store_failure: open}
`
	const calls, waits, deadline, away = 60, 200 * time.Millisecond, "250ms", 210 * time.Millisecond
	for name, stopped := range map[string]bool{"far away": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			redis := startRedis(t, "")
			address := redis.address
			if stopped {
				defer redis.Signal(t, syscall.SIGCONT)
			} else {
				address = farAway(t, redis.address, away)
			}
			s := startServe(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", rules), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
				"--store", "redis://"+address, "--store-timeout", deadline, "--nodes", "1")
			envoy := grpcClient(t, s.at("interface=grpc"), insecure.NewCredentials())
			ask := func(domain string, waits time.Duration) (pb.RateLimitResponse_Code, error) {
				ctx, cancel := context.WithTimeout(t.Context(), waits)
				defer cancel()
				answer, err := envoy.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{
					{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}},
				}})
				return answer.GetOverallCode(), err
			}
			if code, err := ask("none", patience); err != nil || code != pb.RateLimitResponse_OK { // it is connected
				t.Fatal(code, err)
			}
			if stopped {
				redis.Signal(t, syscall.SIGSTOP)
			}
			for domain, want := range map[string][2]int{"local": {5, 15}, "closed": {0, 0}, "open": {calls - 3, calls}} {
				passed, late := 0, 0
				for range calls {
					switch code, err := ask(domain, waits); {
					case status.Code(err) == codes.DeadlineExceeded:
						late++
					case err != nil:
						t.Fatal(err)
					case code == pb.RateLimitResponse_OK:
						passed++
					}
				}
				if passed < want[0] || passed > want[1] || late > 3 {
					t.Errorf("%s: of %d calls %d passed, %d had no answer in time; want %d to %d, and 3 at most", domain, calls, passed, late, want[0], want[1])
				}
			}
		})
	}
}
