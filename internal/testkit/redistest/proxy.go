package redistest

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// A Fault is the harm that a proxy does.
type Fault struct {
	// Delay is how long replies take on their way.
	Delay time.Duration
	// Stall keeps everything, in both directions, until the fault is over.
	Stall bool
	// From are the addresses whose connections stall, without ports; all if
	// there are none.
	From []string
	// Refuse resets new connections.
	Refuse bool
	// CutEvery resets a connection in the middle of every CutEvery-th piece of
	// replies: the commands have been executed by then.
	CutEvery int
}

// A Proxy stands between clients and a server. It forwards everything until
// [Proxy.Set] gives it a fault.
type Proxy struct {
	// Addr is where it listens: 127.0.0.1 and a port.
	Addr string

	server   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed when the fault changes
	conns   map[*net.TCPConn]bool
	cuts    int
	closed  bool
}

// NewProxy returns a proxy in front of a server, which ends with the test.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), server: server, listener: l, changed: make(chan struct{}), conns: map[*net.TCPConn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		l.Close()
		p.Set(Fault{})
		p.Reset()
		p.running.Wait()
	})
	return p
}

// URL returns the proxy's address as a URL.
func (p *Proxy) URL() string { return "redis://" + p.Addr }

// lead sets the server behind the proxy, for a proxy made before its server. No
// client may connect before that.
func (p *Proxy) lead(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

// Set changes the fault, for connections that are there too.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Reset resets all connections.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// Cuts returns how many connections were cut in the middle of a reply.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // an RST, not a FIN
	_ = c.Close()
}

func (p *Proxy) now() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

// keep notes a connection, unless the proxy is gone.
func (p *Proxy) keep(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	reset(c)
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		client := c.(*net.TCPConn)
		if f, _ := p.now(); f.Refuse || !p.keep(client) {
			reset(client)
			continue
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	defer p.drop(client)
	c, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	if !p.keep(server) {
		reset(server)
		return
	}
	from, _, _ := net.SplitHostPort(client.RemoteAddr().String())
	var there sync.WaitGroup
	there.Go(func() {
		p.requests(server, client, from)
		p.drop(server)
	})
	p.replies(client, server, from)
	p.drop(client)
	there.Wait()
}

// wait waits while the proxy stalls connections from an address.
func (p *Proxy) wait(from string) Fault {
	for {
		f, changed := p.now()
		if !f.Stall || len(f.From) > 0 && !slices.Contains(f.From, from) {
			return f
		}
		<-changed
	}
}

func (p *Proxy) requests(to io.Writer, from io.Reader, client string) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.wait(client)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) replies(to io.Writer, from io.Reader, client string) {
	buf := make([]byte, 64<<10)
	for pieces := 1; ; pieces++ {
		n, err := from.Read(buf)
		f := p.wait(client)
		if f.Delay > 0 {
			_, changed := p.now()
			select {
			case <-time.After(f.Delay):
			case <-changed:
			}
		}
		cut := f.CutEvery > 0 && pieces%f.CutEvery == 0
		if cut {
			p.mu.Lock()
			p.cuts++
			p.mu.Unlock()
			n /= 2
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if cut || err != nil {
			return
		}
	}
}
