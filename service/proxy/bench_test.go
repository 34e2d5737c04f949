package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/stint-dev/stint/service/proxy"
)

// BenchmarkProxy is what a request through the proxy costs beside a bare
// httputil.ReverseProxy with the same transport and server. cpu-ns/op is the
// CPU time of the proxy's process alone: the server behind and the clients are
// processes of their own. pooled is a bare one that uses its buffers again, as
// ours does.
func BenchmarkProxy(b *testing.B) {
	target, stop := peer(b, "upstream")
	defer stop()
	upstream := &url.URL{Scheme: "http", Host: target}
	bare := func(buffers httputil.BufferPool) http.Handler {
		return &httputil.ReverseProxy{
			Transport: proxy.NewTransport(), BufferPool: buffers,
			Rewrite: func(pr *httputil.ProxyRequest) {
				pr.SetURL(upstream)
				pr.Out.Host = pr.In.Host
				pr.SetXForwarded()
			},
		}
	}
	b.Run("bare", func(b *testing.B) { throughput(b, bare(nil)) })
	b.Run("pooled", func(b *testing.B) { throughput(b, bare(proxy.NewBuffers())) })
	b.Run("limited", func(b *testing.B) {
		throughput(b, handler(b, yaml(b, "rules: [{name: site, key: [ip], limits: 1_000_000_000 per second}]"), proxy.Options{Upstream: upstream}))
	})
}

// BenchmarkFrameFlood is what one client costs that sends frames of HTTP/2 which ask
// for nothing: cpu-ns/op is the CPU time of the proxy's process for each of them, and
// the client is a process of its own.
func BenchmarkFrameFlood(b *testing.B) {
	for _, kind := range []string{"PING", "SETTINGS", "CONTINUATION"} {
		b.Run(kind, func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			h := handler(b, yaml(b, "rules: [{name: site, key: [ip], limits: 1 per hour}]"), proxy.Options{})
			ctx, stop := context.WithCancel(b.Context())
			served := make(chan error)
			go func() {
				served <- proxy.Serve(ctx, ln, h, proxy.ServeOptions{Log: slog.New(slog.DiscardHandler)})
			}()
			b.ResetTimer()
			before := cpu(b)
			out, err := child(b, "flood", ln.Addr().String(), kind, strconv.Itoa(b.N)).CombinedOutput()
			used := cpu(b) - before
			b.StopTimer()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
			stop()
			if err := <-served; err != nil {
				b.Error(err)
			}
		})
	}
}

// flood sends n frames, and returns when the server has read them or has closed the
// connection.
func flood(address, kind string, n int) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	out := bufio.NewWriter(conn)
	fmt.Fprint(out, http2.ClientPreface)
	f := http2.NewFramer(out, conn)
	send := func() error { return f.WritePing(false, [8]byte{1}) }
	switch kind {
	case "SETTINGS":
		send = func() error { return f.WriteSettings() }
	case "CONTINUATION":
		send = func() error { return f.WriteContinuation(1, false, nil) }
	}
	_ = f.WriteSettings() // to a buffer
	if kind == "CONTINUATION" {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}) // as above
	}
	read := make(chan error, 1)
	go func() { // until the connection ends
		_, err := io.Copy(io.Discard, conn)
		read <- err
	}()
	for range n {
		if send() != nil {
			break // the server has closed it
		}
	}
	_ = f.WriteRawFrame(http2.FrameData, 0, 0, nil) // on no stream, an error that ends the connection
	_ = out.Flush()                                 // as above
	<-read
	return nil
}

// throughput has clients in a process of their own ask b.N times.
func throughput(b *testing.B, h http.Handler) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	served := make(chan error)
	go func() {
		served <- proxy.Serve(ctx, ln, h, proxy.ServeOptions{Drain: time.Minute, Log: slog.New(slog.DiscardHandler)})
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	}()
	load(b, ln.Addr().String(), 200)
	b.ResetTimer()
	before := cpu(b)
	load(b, ln.Addr().String(), b.N)
	used := cpu(b) - before
	b.StopTimer()
	b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
}

// cpu returns the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// load runs clients in a process of their own until they have asked n times.
func load(b *testing.B, address string, n int) {
	child := child(b, "load", address, strconv.Itoa(n))
	if out, err := child.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

// peer runs a server in a process of its own.
func peer(b *testing.B, role ...string) (address string, stop func()) {
	child := child(b, role...)
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	address, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(address), func() {
		_ = in.Close() // it ends with its input
		_ = child.Wait()
	}
}

func child(b *testing.B, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	c := exec.CommandContext(b.Context(), self)
	c.Env = append(os.Environ(), "STINT_BENCH="+strings.Join(args, " "))
	return c
}

// bench is the main of a child process.
func bench(args []string) error {
	switch args[0] {
	case "upstream":
		return untilInputEnds(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"items":["a","b","c"],"next":"/api/items?page=2"}`)
		})
	case "stream":
		return untilInputEnds(streams(args[1:]))
	case "read":
		answer, err := http.Get("http://" + args[1])
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	case "flood":
		n, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return flood(args[1], args[2], n)
	case "load":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return ask("http://"+args[1]+"/api/items?page=1", n)
	}
	return fmt.Errorf("no role %q", args[0])
}

// untilInputEnds serves until standard input ends, and says where.
func untilInputEnds(h http.HandlerFunc) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(ln, h)
}

// ask sends n requests over a few connections.
func ask(url string, n int) error {
	const clients = 8
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}}
	failed := make(chan error, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range (n + i) / clients {
				r, err := http.NewRequest(http.MethodGet, url, nil)
				if err != nil {
					failed <- err
					return
				}
				for name, value := range browser {
					r.Header.Set(name, value)
				}
				answer, err := client.Do(r)
				if err != nil {
					failed <- err
					return
				}
				_, err = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close() // it has been read
				if err == nil && answer.StatusCode != http.StatusOK {
					err = fmt.Errorf("answered %s", answer.Status)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// browser is what most requests come with.
var browser = map[string]string{
	"User-Agent":      "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
	"Accept":          "application/json, text/plain, */*",
	"Accept-Language": "en-GB,en;q=0.8",
	"Accept-Encoding": "gzip, deflate, br, zstd",
	"Cookie":          "session=0123456789abcdef0123456789abcdef",
	"Authorization":   "Bearer 0123456789abcdef",
}
