package benchmarks_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// child is what makes this program one of the small servers that stint's are measured
// beside: "answer", "stream" or "proxy", a blank, the address to listen on, a blank, and
// what is answered, or where the proxy leads.
const child = "STINT_BENCHMARKS_CHILD"

func TestMain(m *testing.M) {
	text := os.Getenv(child)
	if text == "" {
		os.Exit(m.Run())
	}
	parts := strings.SplitN(text, " ", 3)
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = textPlain
		_, _ = io.WriteString(w, parts[2])
	})
	switch parts[0] {
	case "stream":
		h = http.HandlerFunc(stream)
	case "proxy":
		upstream, err := url.Parse(parts[2])
		if err != nil {
			panic(err)
		}
		h = bareProxy(upstream)
	}
	panic((&http.Server{Addr: parts[1], Handler: h, ReadHeaderTimeout: 5 * time.Second}).ListenAndServe())
}

// proxyBuffers is httputil's advice for a proxy of many requests, which stint's
// follows too.
type proxyBuffers struct{ sync.Pool }

func (p *proxyBuffers) Get() []byte  { return p.Pool.Get().([]byte) }
func (p *proxyBuffers) Put(b []byte) { p.Pool.Put(b) } //nolint:staticcheck // SA6002: one small allocation, on the side of the bare proxy

// bareProxy is a ReverseProxy that does nothing else, over a transport with the
// settings of stint's.
func bareProxy(upstream *url.URL) http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.DisableCompression = true
	transport.MaxIdleConns = 512
	transport.MaxIdleConnsPerHost = 256
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
		BufferPool: &proxyBuffers{sync.Pool{New: func() any { return make([]byte, 32<<10) }}},
	}
}

// A process is a server in a process of its own.
type process struct {
	address string
	pid     int
}

// start starts a server, by the arguments that it has for an address, until the benchmark
// ends.
func start(b *testing.B, command func(address string) *exec.Cmd) process {
	b.Helper()
	p := process{address: freeport.Addr(b)}
	c := command(p.address)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	p.pid = c.Process.Pid
	b.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", p.address)
		if err == nil {
			_ = conn.Close()
			return p
		}
		if time.Since(begun) > 10*time.Second {
			b.Fatal(err)
		}
	}
}

// small starts this program as a small server.
func small(kind, with string) func(address string) *exec.Cmd {
	return func(address string) *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), child+"="+kind+" "+address+" "+with)
		return c
	}
}

// used returns the processor time of the process so far, of which Linux counts hundredths
// of a second.
func (p process) used(b *testing.B) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		b.Skip("what other processes use is known on Linux alone")
	}
	_, rest, _ := bytes.Cut(text, []byte(") "))
	fields := strings.Fields(string(rest))
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err != nil || err2 != nil {
		b.Fatal(err, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// connections is how many a client has: more than cores, so that the server
// has something to do while the client looks at an answer.
const connections = 8

// ask sends requests over kept connections, as fast as answers come.
func (p process) ask(b *testing.B, requests [][]byte) {
	var all sync.WaitGroup
	before := p.used(b)
	b.ResetTimer()
	for worker := range connections {
		all.Go(func() {
			conn, err := net.Dial("tcp", p.address)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			for i := range b.N/connections + 1 {
				if _, err := conn.Write(requests[(worker+i*connections)%len(requests)]); err != nil {
					b.Error(err)
					return
				}
				resp, err := http.ReadResponse(r, nil)
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Error(resp, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	n := float64(connections * (b.N/connections + 1))
	b.ReportMetric(float64(p.used(b)-before)/n/1000, "cpu-µs/op")
}

// program builds stint, and writes rules that hold every client to plenty, by address.
func program(b *testing.B) (stint, rules string) {
	dir := b.TempDir()
	stint, rules = filepath.Join(dir, "stint"), filepath.Join(dir, "rules.json")
	disk.Write(b, rules, `{"rules": [{"name": "all", "key": ["ip"], "limits": ["1000000000/s"]}]}`)
	if said, err := exec.Command("go", "build", "-o", stint, "github.com/stint-dev/stint/cmd/stint").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, said)
	}
	return stint, rules
}

// BenchmarkCheck is POST /v1/check of stint serve, beside a server of net/http that reads
// the same bodies and writes an answer as long.
func BenchmarkCheck(b *testing.B) {
	stint, rules := program(b)
	const answer = `{"allowed":true,"rule":"all","limit":1000000000,"remaining":999999999,"retry_after":"0s","retry_after_ms":0,"reset_after":"1ns","reset_after_ms":1}`
	requests := make([][]byte, addresses)
	for i := range requests {
		body := fmt.Sprintf(`{"attributes":{"method":"POST","path":"/login","ip":"192.0.%d.%d"},"cost":1}`, i/250, i%250)
		requests[i] = fmt.Appendf(nil, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	for _, one := range []struct {
		name    string
		command func(address string) *exec.Cmd
	}{
		{"net-http", small("answer", answer)},
		{"stint-serve", func(address string) *exec.Cmd { return exec.Command(stint, "serve", "-c", rules, "--http", address) }},
	} {
		p := start(b, one.command)
		b.Run("by="+one.name, func(b *testing.B) { p.ask(b, requests) })
	}
}

// BenchmarkProxy is a proxy with one rule, beside a bare ReverseProxy and nginx, if that is
// there, all in front of the same server.
func BenchmarkProxy(b *testing.B) {
	stint, rules := program(b)
	behind := start(b, small("answer", "hello")).address
	kinds := []struct {
		name    string
		command func(address string) *exec.Cmd
	}{
		{"ReverseProxy", small("proxy", "http://"+behind)},
		{"stint-proxy", func(address string) *exec.Cmd {
			return exec.Command(stint, "proxy", "-c", rules, "--listen", address, "--upstream", "http://"+behind)
		}},
		{"nginx-limit_req", func(address string) *exec.Cmd {
			dir := b.TempDir()
			config := filepath.Join(dir, "nginx.conf")
			disk.Write(b, config, string(fmt.Appendf(nil, nginxConfig, dir, address, behind)))
			return exec.Command("nginx", "-e", "stderr", "-p", dir, "-c", config)
		}},
	}
	if _, err := exec.LookPath("nginx"); err != nil {
		kinds = kinds[:2]
	}
	for _, one := range kinds {
		p := start(b, one.command)
		b.Run("by="+one.name, func(b *testing.B) {
			p.ask(b, [][]byte{[]byte("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")})
		})
	}
}

// nginxConfig is one process that limits by address and passes on.
const nginxConfig = `daemon off;
master_process off;
error_log stderr crit;
pid %[1]s/nginx.pid;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;
	upstream behind { server %[3]s; keepalive 64; keepalive_requests 100000000; }
	server {
		listen %[2]s;
		keepalive_requests 100000000;
		location / {
			limit_req zone=all burst=1000 nodelay;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_pass http://behind;
		}
	}
}
`
