package proof_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/test/proof/crowd"
)

// TestEnvelopeListeners races takes through every listener of the program
// itself, over sockets: what stint serve answers over HTTP, to Redis clients
// and to Envoy, and what stint proxy lets through to a server.
func TestEnvelopeListeners(t *testing.T) {
	program := buildProgram(t)
	for _, e := range []struct {
		name string
		open func(t *testing.T, program, text string) crowd.Take
	}{
		{"HTTP", serveHTTP}, {"HTTP, several at once", serveBatch}, {"Envoy by JSON", serveJSON}, {"auth", serveAuth}, {"RESP", serveRESP}, {"CL.THROTTLE", serveThrottle}, {"gRPC", serveGRPC}, {"proxy", proxied},
	} {
		t.Run(e.name+" in rounds", func(t *testing.T) { crowd.Rounds(t, scaled(200, 400, 5000), e.open(t, program, "1/1h")) })
		for i, text := range []string{"1000/s burst 3", "10/10ms sliding_log", "20/20ms fixed_window", "30/1h"} {
			for j, goroutines := range []int{2, 64, 1000} {
				if e.name == "CL.THROTTLE" && i > 0 || brief() && (i+j)%3 != 0 {
					continue // whose limits are buckets of whole seconds
				}
				t.Run(fmt.Sprint(e.name, " ", text, " by ", goroutines), func(t *testing.T) {
					needFiles(t, 2*goroutines) // of the proxy's upstream, there are as many connections again
					crowd.Run(t, spec(parse(t, text)), goroutines, time.Duration(scaled(60, 150, 2000))*time.Millisecond, e.open(t, program, text))
				})
			}
		}
	}
}

// needFiles skips a test where fewer files may be open, and some hundred others.
func needFiles(t *testing.T, n int) {
	t.Helper()
	var most syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &most); err != nil {
		t.Fatal(err)
	}
	if most.Max < uint64(n+300) {
		t.Skipf("it needs %d open files, and %d is the most: ulimit -Hn", n+300, most.Max)
	}
}

func buildProgram(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "stint")
	if said, err := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/stint-dev/stint/cmd/stint").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

// start runs the program with a rules file of one limit by address, until the
// test ends, and waits for the address to answer. It keeps two threads busy on
// every core, so that they stand still in the middle of decisions.
func start(t *testing.T, program, text, address string, args ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stint.yaml")
	rules := fmt.Sprintf("trusted_proxies: [127.0.0.1]\nrules:\n  - {name: entry, key: [ip], limits: [%q]}\n", text)
	disk.Write(t, file, rules)
	var said bytes.Buffer
	cmd := exec.Command(program, append(args, "-c", file)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", 4*runtime.NumCPU()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(said.String())
		}
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("%v ended:\n%s", args, said.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatalf("%v does not listen:\n%s", args, said.String())
}

// dialling has a place for each connection that may be begun at once: a crowd comes
// in such batches, or it overflows the queue of a listener.
var dialling = make(chan struct{}, 100)

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialling <- struct{}{}
	defer func() { <-dialling }()
	return new(net.Dialer).DialContext(ctx, network, address)
}

// connections keeps enough connections for a crowd.
func connections(t *testing.T) *http.Transport {
	transport := &http.Transport{DialContext: dial, MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// served asks stint serve over HTTP.
func served(request func(url, key string) (*http.Request, error)) func(t *testing.T, program, text string) crowd.Take {
	return func(t *testing.T, program, text string) crowd.Take {
		address := freeport.Addr(t)
		start(t, program, text, address, "serve", "--http", address)
		return crowd.HTTP(t, connections(t), func(key string) (*http.Request, error) { return request("http://"+address, key) })
	}
}

var (
	serveHTTP = served(func(url, key string) (*http.Request, error) {
		return http.NewRequest("POST", url+"/v1/check", strings.NewReader(`{"attributes":{"ip":"`+key+`"}}`))
	})
	serveJSON = served(func(url, key string) (*http.Request, error) {
		return http.NewRequest("POST", url+"/json", strings.NewReader(`{"domain":"any","descriptors":[{"entries":[{"key":"ip","value":"`+key+`"}]}]}`))
	})
	serveAuth = served(func(url, key string) (*http.Request, error) {
		r, err := http.NewRequest("GET", url+"/auth", nil)
		if err == nil {
			r.Header = http.Header{"X-Forwarded-For": {key}, "X-Original-Method": {"GET"}, "X-Original-Uri": {"/"}, "X-Original-Host": {"example.com"}}
		}
		return r, err
	})
)

// serveBatch asks for the key beside another, in one body.
func serveBatch(t *testing.T, program, text string) crowd.Take {
	address := freeport.Addr(t)
	start(t, program, text, address, "serve", "--http", address)
	c := &http.Client{Transport: connections(t), Timeout: time.Minute}
	return func(key string) (bool, error) {
		answer, err := c.Post("http://"+address+"/v1/check", "application/json",
			strings.NewReader(`{"requests":[{"attributes":{"ip":"192.0.2.8"}},{"attributes":{"ip":"`+key+`"}}]}`))
		if err != nil {
			return false, err
		}
		var said struct{ Results []struct{ Allowed *bool } }
		err = json.NewDecoder(answer.Body).Decode(&said)
		_ = answer.Body.Close()
		if err != nil || len(said.Results) != 2 || said.Results[1].Allowed == nil {
			return false, fmt.Errorf("status %d: %+v, %v", answer.StatusCode, said, err)
		}
		return *said.Results[1].Allowed, nil
	}
}

func proxied(t *testing.T, program, text string) crowd.Take {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	address := freeport.Addr(t)
	// A crowd is a flood to its bounds on overload, which answer 503.
	start(t, program, text, address, "proxy", "--listen", address, "--upstream", upstream.URL, "--max-in-flight", "0", "--max-lag", "0s")
	return crowd.HTTP(t, connections(t), func(key string) (*http.Request, error) {
		r, err := http.NewRequest("GET", "http://"+address+"/", nil)
		if err == nil {
			r.Header.Set("X-Forwarded-For", key)
		}
		return r, err
	})
}

// serveGRPC asks as Envoy does. The messages are written by hand, from the
// field numbers of envoy.service.ratelimit.v3.
func serveGRPC(t *testing.T, program, text string) crowd.Take {
	address := freeport.Addr(t)
	start(t, program, text, address, "serve", "--http", "127.0.0.1:0", "--grpc", address)
	c := &http.Client{Transport: connections(t), Timeout: time.Minute}
	c.Transport.(*http.Transport).Protocols = new(http.Protocols)
	c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	return func(key string) (bool, error) {
		entry := field(nil, 1, "ip")
		entry = field(entry, 2, key)
		message := field(nil, 1, "any")                                   // RateLimitRequest.domain
		message = field(message, 2, string(field(nil, 1, string(entry)))) // .descriptors[0].entries[0]
		frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		r, err := http.NewRequestWithContext(context.Background(), "POST", "http://"+address+"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", bytes.NewReader(frame))
		if err != nil {
			return false, err
		}
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("TE", "trailers")
		answer, err := c.Do(r)
		if err != nil {
			return false, err
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		// The first field of a RateLimitResponse is overall_code: 1 is OK, 2 is OVER_LIMIT.
		if err != nil || len(body) < 7 || body[5] != 0x08 || body[6] != 1 && body[6] != 2 {
			return false, fmt.Errorf("answer %q, status %v %v", body, answer.Trailer, err)
		}
		return body[6] == 1, nil
	}
}

// field appends a field of text or of a message.
func field(to []byte, number byte, value string) []byte {
	return append(append(to, number<<3|2, byte(len(value))), value...)
}

func serveRESP(t *testing.T, program, text string) crowd.Take {
	address := freeport.Addr(t)
	start(t, program, text, address, "serve", "--http", "127.0.0.1:0", "--resp", address)
	return respTake(t, address, func(key string) []string { return []string{"STINT.CHECK", "ip", key} }, ":1", ":0")
}

func serveThrottle(t *testing.T, program, text string) crowd.Take {
	address := freeport.Addr(t)
	l := parse(t, text)
	// redis-cell's max_burst is one less than the burst.
	limit := []string{fmt.Sprint(l.Burst() - 1), fmt.Sprint(l.Count()), fmt.Sprint(int64(l.Period() / time.Second))}
	start(t, program, "1/1h", address, "serve", "--http", "127.0.0.1:0", "--resp", address)
	return respTake(t, address, func(key string) []string { return append([]string{"CL.THROTTLE", key}, limit...) }, ":0", ":1")
}

// respTake sends a command on a connection of the pool and reads its answer, an
// array whose first element says whether the request passed.
func respTake(t *testing.T, address string, command func(key string) []string, passed, denied string) crowd.Take {
	type conn struct {
		net.Conn
		in *bufio.Reader
	}
	var pool sync.Pool
	return func(key string) (bool, error) {
		c, _ := pool.Get().(*conn)
		if c == nil {
			raw, err := dial(context.Background(), "tcp", address)
			if err != nil {
				return false, err
			}
			c = &conn{raw, bufio.NewReader(raw)}
			t.Cleanup(func() { _ = raw.Close() })
		}
		words := command(key)
		var text strings.Builder
		fmt.Fprintf(&text, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
		}
		if _, err := io.WriteString(c, text.String()); err != nil {
			return false, err
		}
		first, err := readArray(c.in)
		if err != nil || first != passed && first != denied {
			return false, fmt.Errorf("answer %q, %v", first, err)
		}
		pool.Put(c)
		return first == passed, nil
	}
}

// readArray reads an array and returns what decides of it: its first number, or
// the value of its member allowed.
func readArray(in *bufio.Reader) (first string, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	var n int
	if _, err := fmt.Sscanf(line, "*%d", &n); err != nil {
		return "", fmt.Errorf("answer %q", line)
	}
	for i := range n {
		value, err := readValue(in)
		if err != nil {
			return "", err
		}
		if i == 0 {
			first = value
		}
		if i == 1 && first == "allowed" {
			first = value
		}
	}
	return first, nil
}

func readValue(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	line = strings.TrimRight(line, "\r\n")
	if err != nil || line == "" {
		return "", err
	}
	var n int
	switch line[0] {
	case '$':
		if _, err := fmt.Sscanf(line, "$%d", &n); err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	case '*':
		if _, err := fmt.Sscanf(line, "*%d", &n); err != nil {
			return "", err
		}
		for range n {
			if _, err := readValue(in); err != nil {
				return "", err
			}
		}
	}
	return line, nil
}
