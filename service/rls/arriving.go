package rls

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
)

// Bounds of messages that are arriving. A call allocates the length that its client names, and
// clients may begin many messages without ending them. Bytes that have arrived count.
const (
	// mostComing bounds the arriving bytes of all connections. comingParts is by how much the free
	// bytes are divided to get the bound of one connection.
	mostComing  = 256 << 20
	comingParts = 4
	// leastComing is what a connection may always have.
	leastComing = 1 << 20
)

var errRoom = errors.New("too much of too many calls is on its way")

// An arrivals counts the arriving messages, and the metadata of calls, of all connections of a
// listener.
type arrivals struct {
	net.Listener
	coming atomic.Int64
	read   time.Duration // the longest time of a call
}

// Accept implements [net.Listener].
func (r *arrivals) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &arriving{Conn: c, room: r, began: time.Now()}, nil
}

// An arriving is a connection that counts the bytes that have come, without messages that have been
// decided. Metadata counts until its call ends. Other bytes count for as long as a call may take,
// up to twice that.
type arriving struct {
	net.Conn
	room *arrivals

	mu          sync.Mutex
	began       time.Time // when now began
	now, before int64     // bytes in two periods; their sum is never below 0
	calls       int64     // bytes of the metadata of its open calls
}

// Read implements [net.Conn].
func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if !a.fits(a.add(int64(n))) {
		_ = a.Close()
		return 0, errRoom
	}
	return n, err
}

// fits reports whether the connection may hold so many bytes.
func (a *arriving) fits(held int64) bool {
	return held <= leastComing || held <= (mostComing-a.room.coming.Load()+held)/comingParts
}

// open counts the metadata of a call, or with n < 0 uncounts that of a call that has ended, also
// after Close. If there is no room it counts nothing and returns false.
func (a *arriving) open(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls += n
	a.room.coming.Add(n)
	if n > 0 && !a.fits(a.now+a.before+a.calls) {
		a.calls -= n
		a.room.coming.Add(-n)
		return false
	}
	return true
}

// Close implements [net.Conn].
func (a *arriving) Close() error {
	a.mu.Lock()
	a.room.coming.Add(-a.now - a.before)
	a.now, a.before = 0, 0
	a.mu.Unlock()
	return a.Conn.Close()
}

// RemoteAddr implements [net.Conn]. A call finds its connection by this address.
func (a *arriving) RemoteAddr() net.Addr { return whence{a.Conn.RemoteAddr(), a} }

// add counts bytes, or with n < 0 uncounts those of a complete message, and returns how many the
// connection holds.
func (a *arriving) add(n int64) (held int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.now + a.before
	for stretches := 0; time.Since(a.began) >= a.room.read; a.began = a.began.Add(a.room.read) {
		a.before, a.now = a.now, 0
		if stretches++; stretches > 1 {
			a.began = time.Now()
			break
		}
	}
	if n < 0 { // the oldest first
		part := min(-n, a.before)
		a.before -= part
		n = -min(-n-part, a.now)
	}
	a.now += n
	a.room.coming.Add(a.now + a.before - was)
	return a.now + a.before + a.calls
}

// A whence is the address of a client with its connection.
type whence struct {
	net.Addr
	conn *arriving
}

// peerOf returns the address of a call's client.
func peerOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return new(net.UnixAddr)
}

// connOf returns the connection of a client, or nil where the listener has no arrivals.
func connOf(from net.Addr) *arriving {
	at, _ := from.(whence)
	return at.conn
}

// decided uncounts the message of a call.
func decided(ctx context.Context, m proto.Message) {
	if conn := connOf(peerOf(ctx)); conn != nil {
		conn.add(-int64(proto.Size(m)))
	}
}
