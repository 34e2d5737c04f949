package main_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/race"
)

// TestFewDescriptorsDials has clients leave at once while the server behind accepts no
// connection: each request leaves a connection behind that is being made. Operators are
// answered all the same, and everybody once the server accepts.
func TestFewDescriptorsDials(t *testing.T) {
	need.Time(t)
	behind := stalled(t)
	p := fewDescriptors(t, 256, "proxy --limit 1000000/s --listen 127.0.0.1:0 --upstream http://"+behind.Addr().String())
	for i := range 400 {
		conn, err := net.DialTimeout("tcp", host(p.front), patience)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		before := dialing(t, behind)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		await.Until(t, "it is on its way to the server behind, or refused", func() bool {
			now := dialing(t, behind)
			before = min(before, now)
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, _ := conn.Read(make([]byte, 1))
			return now > before || n > 0
		})
		_ = conn.Close()
	}
	p.lives()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d descriptors are in use", len(open))
	if most := 96 + 64; len(open) > most { // connections to the server behind, and those that are reserved
		t.Errorf("%d descriptors are in use, want at most %d", len(open), most)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(behind) }()
	defer server.Close()
	await.Until(t, "it answers afterwards", func() bool { return statusOf(t, from("127.0.0.1"), p.front+"/") == http.StatusOK })
}

// dialing returns how many connections to a listener are being made.
func dialing(t *testing.T, to net.Listener) int {
	table := disk.Read(t, "/proc/net/tcp")
	return strings.Count(string(table), fmt.Sprintf("0100007F:%04X 02 ", to.Addr().(*net.TCPAddr).Port)) // SYN_SENT
}

// stalled returns a listener whose queue of connections is full.
func stalled(t *testing.T) net.Listener {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	ln, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	for range 4 {
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
		stop()
		if err != nil {
			return ln
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal(fmt.Sprint("the queue of ", ln.Addr(), " does not fill"))
	return nil
}

// A memoryFlood makes a process hold memory for its clients.
type memoryFlood struct {
	name, args string
	// send floods what listens at an address, and returns what it holds open.
	send    func(t *testing.T, at string) []net.Conn
	address string // which address; the default is that for HTTP
	ask     string // one normal request, which is answered with 200
	held    int    // the least growth of the memory in MiB, without which it was no flood
	most    int    // what the process may have at most, in MiB
}

// TestMemoryFloods has a process hold as much memory as its clients can make it
// hold: headers without an end, bodies that stop halfway, many streams of one
// connection, new keys. The most that it ever had is bounded, operators are answered
// meanwhile, and afterwards the same process answers normal requests and has no
// more heap (half as much again and 16 MiB), goroutines and descriptors (20 each) than
// before. What it has resident is not compared: Go keeps freed pages for a while.
func TestMemoryFloods(t *testing.T) {
	need.Time(t)
	var can syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &can); err != nil || can.Max < 8192 {
		t.Skipf("at most %d descriptors, %v: too few for a flood", can.Max, err)
	}
	finish := make(chan struct{})
	behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-finish
		}
	}))
	t.Cleanup(behind.Close)
	t.Cleanup(sync.OnceFunc(func() { close(finish) }))
	token := disk.Write(t, t.TempDir()+"/token", serveToken+"\n")
	proxy := "proxy --limit 1000000/s --listen 127.0.0.1:0 --upstream " + behind.URL
	serve := "serve --limit 1000000/s --key ip --http 127.0.0.1:0"
	keyed := " --key header.x-key --max-keys 2000"
	get := "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Key: normal\r\n" + fields(24) + "\r\n" // so that the collector has something to do
	check := checkOf(`{"attributes":{"ip":"192.0.2.7","header.x-key":"normal"}}`)
	endless := "GET / HTTP/1.1\r\nHost: localhost\r\n"
	for _, test := range []memoryFlood{
		{"proxy headers", proxy, each(1000, endless+fields(30)), "", get, 20, 250},
		{"proxy bodies", proxy, each(500, "POST /hold HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n"+strings.Repeat("x", 200_000)), "", get, 20, 250},
		{"proxy streams", proxy, streams(2, 250, "/hold", "", 28), "", get, 20, 250},
		{"proxy bodies of streams", proxy, streams(40, 16, "/hold", strings.Repeat("x", 60_000), 1), "", get, 20, 400},
		{"proxy keys", strings.Replace(proxy, "1000000/s", "1000000/h", 1) + keyed, newKeys, "", get, 0, 150},
		{"serve headers", serve, each(1000, endless+fields(14)), "", check, 10, 200},
		{"serve bodies", serve, each(500, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65000\r\n\r\n"+strings.Repeat("x", 40_000)), "", check, 20, 350},
		{"serve keys", strings.Replace(serve, "--key ip", keyed, 1), newChecks, "", check, 0, 150},
		{"serve calls", serve + " --grpc 127.0.0.1:0", streams(20, 1000, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "\x00\x00\x00\xff\xff"+strings.Repeat("x", 4000), 12), "grpc", check, 20, 350},
		{"serve commands", serve + " --resp 127.0.0.1:0 --token-file " + token, each(500, "*2\r\n$4\r\nPING\r\n$65000\r\n"+strings.Repeat("x", 60_000)), "resp", withToken(check), 20, 350},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // the process is its own
			test.run(t)
		})
	}
}

func (f *memoryFlood) run(t *testing.T) {
	p := fewDescriptors(t, 4096, f.args)
	address := host(p.front)
	if f.address != "" {
		address = p.at("interface=" + f.address)
	}
	normal := func() {
		t.Helper()
		if got := firstLine(host(p.front), f.ask); got != "HTTP/1.1 200 OK" {
			t.Fatalf("a normal request: %q", got)
		}
	}
	for range 100 {
		normal()
	}
	before := p.measure()
	conns := f.send(t, address)
	during := p.settle()
	for _, conn := range conns {
		_ = conn.Close() // this is the point
	}
	grown := during.heap - before.heap
	if grown < int64(f.held)<<20 {
		t.Errorf("the heap grew by %d KiB: that was no flood", grown>>10)
	}
	peak := p.highWater()
	t.Logf("before %v; during %v; at most %d MiB", before, during, peak>>20)
	if peak > int64(f.most)<<20 && !race.On { // the detector keeps several bytes for each
		t.Errorf("it had %d MiB, want at most %d", peak>>20, f.most)
	}
	var after measured
	await.Until(t, "after the flood, it has as much as before it: "+before.String(), func() bool {
		for range 50 {
			normal() // the collector runs when there is something to collect
		}
		after = p.measure()
		return after.heap <= before.heap*3/2+16<<20 && after.goroutines <= before.goroutines+20 && after.descriptors <= before.descriptors+20
	})
	t.Logf("after %v", after)
}

// measured is what a process says that it has.
type measured struct{ heap, resident, goroutines, descriptors int64 }

func (m measured) String() string {
	return fmt.Sprintf("%d MiB of heap, %d MiB resident, %d goroutines, %d descriptors", m.heap>>20, m.resident>>20, m.goroutines, m.descriptors)
}

func (p *running) measure() measured {
	p.t.Helper()
	_, text := p.call(http.MethodGet, p.admin+"/metrics", "", nil)
	value := func(name string) int64 {
		m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
		if m == nil {
			p.t.Fatalf("no %s among the metrics", name)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			p.t.Fatal(err)
		}
		return int64(v)
	}
	return measured{value("go_memstats_heap_inuse_bytes"), value("process_resident_memory_bytes"), value("go_goroutines"), value("process_open_fds")}
}

// settle measures until the heap grows no more: until what was sent has been read.
func (p *running) settle() measured {
	p.t.Helper()
	most := p.measure()
	for still := 0; still < 5; still++ {
		time.Sleep(50 * time.Millisecond)
		if m := p.measure(); m.heap > most.heap {
			most, still = m, 0
		}
	}
	return most
}

// highWater returns the most memory that a process ever had resident, in bytes.
func (p *running) highWater() int64 {
	p.t.Helper()
	status := disk.Read(p.t, fmt.Sprintf("/proc/%d/status", p.process.Process.Pid))
	var kib int64
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		p.t.Fatal(err)
	}
	return kib << 10
}

// dialFrom connects from one of four addresses, of which each may have its share of
// the connections.
func dialFrom(i int, address string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%4))}, Timeout: 5 * time.Second}
	return dialer.Dial("tcp", address)
}

// sendTo sends all that is taken of a text within half a second.
func sendTo(conn net.Conn, text string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second / 2)) // TCP has them
	_, _ = io.WriteString(conn, text)                          // what is held back is as good
}

// each sends one text on each of so many connections.
func each(n int, text string) func(*testing.T, string) []net.Conn {
	return func(t *testing.T, address string) (conns []net.Conn) {
		var all sync.WaitGroup
		defer all.Wait()
		for i := range n {
			conn, err := dialFrom(i, address)
			if err != nil {
				break // the backlog is full, which is as good
			}
			conns = append(conns, conn)
			all.Go(func() { sendTo(conn, text) })
		}
		return conns
	}
}

// streams begins so many requests of HTTP/2 on each of n connections, with headers of
// so many KiB that take few bytes on the line, and a body that does not end.
func streams(n, many int, path, body string, kib int) func(*testing.T, string) []net.Conn {
	var all bytes.Buffer
	all.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&all, nil)
	_ = f.WriteSettings() // to a buffer, as all that follows
	_ = f.WriteWindowUpdate(0, 1<<30)
	var header bytes.Buffer
	e := hpack.NewEncoder(&header)
	for i := range many {
		header.Reset()
		list := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "h"}, {":path", path}, {"content-type", "application/grpc"}, {"te", "trailers"}}
		if path == "/hold" {
			list[4] = [2]string{"content-type", "text/plain"}
		}
		for k := range kib {
			list = append(list, [2]string{fmt.Sprint("x-", k), strings.Repeat("x", 900)})
		}
		for _, field := range list {
			_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		id, block := uint32(2*i+1), header.Bytes()
		first := min(len(block), 16<<10)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:first], EndHeaders: first == len(block)})
		for rest := block[first:]; len(rest) > 0; {
			piece := min(len(rest), 16<<10)
			_ = f.WriteContinuation(id, piece == len(rest), rest[:piece])
			rest = rest[piece:]
		}
		for rest := body; rest != ""; {
			piece := min(len(rest), 16<<10)
			_ = f.WriteData(id, false, []byte(rest[:piece]))
			rest = rest[piece:]
		}
	}
	sendAll := each(n, all.String())
	return func(t *testing.T, address string) []net.Conn {
		conns := sendAll(t, address)
		for _, conn := range conns {
			go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
		}
		return conns
	}
}

// fields returns so many headers of 1,000 bytes.
func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-%d: %s\r\n", i, strings.Repeat("x", 1000))
	}
	return b.String()
}

// newKeys sends requests with 20,000 keys, ten times as many as there may be.
func newKeys(t *testing.T, address string) []net.Conn {
	return pipeline(t, address, 20_000, func(i int) string {
		return fmt.Sprintf("GET / HTTP/1.1\r\nHost: h\r\nX-Key: %d-%s\r\n\r\n", i, strings.Repeat("k", 200))
	})
}

// newChecks does so with batches of checks.
func newChecks(t *testing.T, address string) []net.Conn {
	return pipeline(t, address, 400, func(i int) string {
		var checks []string
		for k := range 100 {
			checks = append(checks, fmt.Sprintf(`{"attributes":{"header.x-key":"%d-%d-%s"}}`, i, k, strings.Repeat("k", 200)))
		}
		return strings.Replace(checkOf(`{"requests":[`+strings.Join(checks, ",")+`]}`), "Connection: close\r\n", "", 1)
	})
}

// pipeline sends n requests over four connections, and reads what comes.
func pipeline(t *testing.T, address string, n int, request func(i int) string) (conns []net.Conn) {
	t.Helper()
	var all sync.WaitGroup
	for c := range 4 {
		conn, err := dialFrom(c, address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		all.Go(func() {
			go func() {
				for i := c; i < n; i += 4 {
					_, _ = io.WriteString(conn, request(i))
				}
			}()
			readAnswers(t, conn, n/4)
		})
	}
	all.Wait()
	return conns
}

// readAnswers reads so many answers, which are to be 200 or 429.
func readAnswers(t *testing.T, conn net.Conn, n int) {
	from := bufio.NewReader(conn)
	for i := range n {
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Errorf("answer %d: %v", i, err)
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body) // the status says it
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
			t.Errorf("answer %d: %s", i, answer.Status)
			return
		}
	}
}

// checkOf returns a request to /v1/check with a body.
func checkOf(body string) string {
	return fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n%s", fields(13), len(body), body)
}

// withToken adds a token to a request.
func withToken(request string) string {
	return strings.Replace(request, "\r\n", "\r\nAuthorization: Bearer "+serveToken+"\r\n", 1)
}

// firstLine returns the first line of the answer to a request of a client of its own.
func firstLine(address, request string) string {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience)) // TCP has them
	if _, err := io.WriteString(conn, request); err != nil {
		return err.Error()
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}
