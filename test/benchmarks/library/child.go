package library

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"time"
)

// ChildWord as the first argument makes the program one of the small servers that
// stint's are measured beside, in a process of its own.
const ChildWord = "child"

// A canned answer is what a floor server prints, whatever it is asked.
type canned struct {
	Header http.Header
	Body   string
	// Timeouts gives the server those of `stint serve`.
	Timeouts bool
}

// BeChild serves until its input ends: what has started it has gone then. It
// prints its address first.
func BeChild(args []string) error {
	if len(args) != 2 {
		return errors.New("child: want a kind of server and what it needs")
	}
	var s http.Server
	switch kind, with := args[0], args[1]; kind {
	case "answer":
		var c canned
		if err := json.Unmarshal([]byte(with), &c); err != nil {
			return err
		}
		s.Handler = &c
		if c.Timeouts {
			s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 5*time.Second, 10*time.Second, 10*time.Second, 2*time.Minute
		}
	case "proxy":
		upstream, err := url.Parse(with)
		if err != nil {
			return err
		}
		s.Handler = bareProxy(upstream)
		s.ReadHeaderTimeout, s.IdleTimeout = 5*time.Second, time.Minute
	default:
		return fmt.Errorf("child: no server %q", kind)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = s.Close() // the process ends
	}()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

var bodies = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// ServeHTTP reads the whole body and prints the answer.
func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	buf := bodies.Get().(*[64 << 10]byte)
	defer bodies.Put(buf)
	for n := 0; n < len(buf); {
		more, err := r.Body.Read(buf[n:])
		if n += more; err != nil {
			break
		}
	}
	h := w.Header()
	for name, values := range c.Header {
		h[name] = values
	}
	_, _ = io.WriteString(w, c.Body) // the client may be gone: the error has no reader
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
	name    string
	address string
	command *exec.Cmd
	input   io.Closer // nil but for a child of this program
	said    *lastWords
}

// startChild starts this program as a small server.
func startChild(name, kind, with string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, command: exec.Command(self, ChildWord, kind, with), said: new(lastWords)}
	p.command.Stderr = p.said
	in, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.input = in
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("%s: no address: %w: %s", name, err, p.said)
	}
	p.address = strings.TrimSpace(line)
	return p, p.answers()
}

// startServer starts another program, which is to listen on the address.
func startServer(name, address, program string, args ...string) (*process, error) {
	p := &process{name: name, address: address, command: exec.Command(program, args...), said: new(lastWords)}
	p.command.Stdout, p.command.Stderr = p.said, p.said
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	return p, p.answers()
}

// answers waits until the server takes connections.
func (p *process) answers() error {
	begun := time.Now()
	for {
		conn, err := net.DialTimeout("tcp", p.address, time.Second)
		if err == nil {
			return conn.Close()
		}
		if time.Since(begun) > 10*time.Second {
			p.stop()
			return fmt.Errorf("%s does not answer: %w: %s", p.name, err, p.said)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stop ends the process, by force if need be.
func (p *process) stop() {
	if p.input != nil {
		_ = p.input.Close() // which ends the child
	}
	_ = p.command.Process.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = p.command.Process.Kill() })()
	_ = p.command.Wait() // it was signalled: its exit status does not matter
}

// used returns the processor time of the process so far.
func (p *process) used() time.Duration { return processorTimeOf(p.command.Process.Pid) }

// freeAddress returns a free address of this machine.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return "127.0.0.1:" + strconv.Itoa(ln.Addr().(*net.TCPAddr).Port), nil
}

// lastWords keeps the last of what a process has said, for an error.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	l.text = l.text[max(0, len(l.text)-1000):]
	return len(b), nil
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
