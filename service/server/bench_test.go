package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

// What is asked and answered in the benchmarks.
const (
	benchRules    = `{"rules":[{"name":"login","match":{"method":"POST","path":"/login"},"key":["ip"],"limits":["1_000_000_000 per second"]}]}`
	benchQuestion = `{"attributes":{"method":"POST","path":"/login","ip":"192.0.2.7"},"cost":1}`
	benchAnswer   = `{"allowed":true,"rule":"login","limit":1000000000,"remaining":999999999,"retry_after":"0s","reset_after":"1ns"}` + "\n"
)

// floor is a server that reads a body and prints the answer.
func floor(w http.ResponseWriter, r *http.Request) {
	if _, err := io.ReadAll(r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, benchAnswer)
}

// BenchmarkHandler is the handlers alone: /v1/check and the floor.
func BenchmarkHandler(b *testing.B) {
	check := server.NewHandler(newOptions(b, benchRules))
	for _, one := range []struct {
		name string
		h    http.Handler
	}{{"check", check}, {"floor", http.HandlerFunc(floor)}} {
		b.Run(one.name, func(b *testing.B) {
			body := bytes.NewReader([]byte(benchQuestion))
			r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/check", nil)
			r.Header.Set("Content-Type", "application/json")
			r.Body, r.ContentLength = io.NopCloser(body), int64(body.Len())
			w := &sink{header: make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = body.Seek(0, io.SeekStart)
				clear(w.header)
				one.h.ServeHTTP(w, r)
			}
		})
	}
}

// A sink is a ResponseWriter that keeps nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}

// BenchmarkServer is servers in processes of their own, over connections that
// are kept: cpu-ns/op is the processor time that the server took for one
// request, user and system. check has the fields of draft 11, bare has none, as
// the floor.
func BenchmarkServer(b *testing.B) {
	for _, kind := range []string{"check", "bare", "floor"} {
		b.Run(kind, func(b *testing.B) {
			child, address := startChild(b, kind)
			const connections = 8
			var wg sync.WaitGroup
			load := func(n int) {
				for i := range connections {
					wg.Go(func() { drive(b, address, n/connections+(connections-1-i+n%connections)/connections) })
				}
				wg.Wait()
			}
			load(connections * 100)
			before := processorTime(b, child)
			b.ResetTimer()
			load(b.N)
			b.StopTimer()
			b.ReportMetric(float64(processorTime(b, child)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkLatency sends 4,000 questions a second, well below what the servers
// can answer, at times that do not wait for answers, and reports how long
// answers took from the time that each was due: p50-µs and p99-µs.
func BenchmarkLatency(b *testing.B) {
	for _, kind := range []string{"check", "bare", "floor"} {
		b.Run(kind, func(b *testing.B) {
			_, address := startChild(b, kind)
			const connections, every = 8, 2 * time.Millisecond
			each := max(b.N/connections, 1)
			took := make([]time.Duration, connections*each)
			begin := time.Now().Add(10 * time.Millisecond)
			var wg sync.WaitGroup
			for c := range connections {
				wg.Go(func() {
					first := begin.Add(every * time.Duration(c) / connections)
					pace(b, address, first, every, took[c*each:(c+1)*each])
				})
			}
			wg.Wait()
			slices.Sort(took)
			b.ReportMetric(0, "ns/op") // the pace says nothing
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
		})
	}
}

// pace sends a question at each of its times over one connection, and notes how
// long after that the answer was there.
func pace(b *testing.B, address string, first time.Time, every time.Duration, took []time.Duration) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Error(err)
		return
	}
	defer conn.Close()
	question, in := questionTo(address), bufio.NewReader(conn)
	for i := range took {
		due := first.Add(every * time.Duration(i))
		time.Sleep(time.Until(due))
		if _, err = conn.Write(question); err == nil {
			err = skipAnswer(in)
		}
		if err != nil {
			b.Error(err)
			return
		}
		took[i] = time.Since(due)
	}
}

func questionTo(address string) []byte {
	return fmt.Appendf(nil, "POST /v1/check HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		address, len(benchQuestion), benchQuestion)
}

// drive sends n questions over one connection.
func drive(b testing.TB, address string, n int) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Error(err)
		return
	}
	defer conn.Close()
	question, in := questionTo(address), bufio.NewReader(conn)
	for range n {
		if _, err := conn.Write(question); err != nil {
			b.Error(err)
			return
		}
		if err := skipAnswer(in); err != nil {
			b.Error(err)
			return
		}
	}
}

// skipAnswer reads an answer with as little work as can be.
func skipAnswer(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil || !bytes.Contains(line, []byte(" 200 ")) {
		return fmt.Errorf("%q: %w", line, err)
	}
	length := 0
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) == 2 {
			_, err = in.Discard(length)
			return err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
}

// startChild starts a server in a process of its own and returns its address.
func startChild(b testing.TB, kind string) (child *exec.Cmd, address string) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	child = exec.CommandContext(b.Context(), self)
	child.Env = append(os.Environ(), "STINT_TEST_SERVER="+kind)
	child.Stderr = os.Stderr
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err = child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = child.Wait() }) // the context stops it
	if address, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	return child, strings.TrimSpace(address)
}

// childServer is the server of a child process.
func childServer(kind string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h := http.Handler(http.HandlerFunc(floor))
	if kind != "floor" {
		file, err := rules.Decode("rules.json", []byte(benchRules))
		if err != nil {
			panic(err)
		}
		source, err := rules.Open(memstore.New(memstore.Options{}), "", file, rules.Options{})
		if err != nil {
			panic(err)
		}
		observer := observe.New(observe.Options{})
		o := server.Options{Source: source, Observer: observer, Admin: &server.Admin{Source: source, Observer: observer}, Open: true}
		if kind == "bare" {
			o.Dialect = noFields
		}
		h = server.CheckHost(server.NewHandler(o), nil)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	if err := server.Serve(ctx, ln, h, server.ServeOptions{}); err != nil && !errors.Is(err, context.Canceled) {
		return 1
	}
	return 0
}

// processorTime returns the time that a process has run, in nanoseconds: that of
// all its threads.
func processorTime(b *testing.B, child *exec.Cmd) (total int64) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", child.Process.Pid))
	if err != nil || len(threads) == 0 {
		b.Skip("no schedstat of processes here")
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			b.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		total += n
	}
	return total
}
