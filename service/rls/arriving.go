package rls

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
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
// server, above their encryption.
type arrivals struct {
	credentials.TransportCredentials
	coming atomic.Int64
}

// ServerHandshake implements [credentials.TransportCredentials].
func (r *arrivals) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := r.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return nil, nil, err
	}
	a := &arriving{Conn: c, room: r, of: make(map[uint32]int64), less: make(chan struct{}, 1)}
	a.in, a.out = frames{left: len(http2.ClientPreface), data: a.came, begins: a.begun, ends: a.gone}, frames{ends: a.answered}
	return a, info, nil
}

// An arriving is a connection that counts the bytes that it has read of each open call, until its
// client resets it or its answer is on its way, and the metadata.
type arriving struct {
	net.Conn
	room    *arrivals
	in, out frames
	less    chan struct{} // has a value once there is more room

	mu    sync.Mutex
	of    map[uint32]int64 // the bytes of each open call; nil once closed
	last  uint32           // the call that was begun last
	held  int64            // their sum
	calls int64            // bytes of the metadata of open calls
}

// roomWithin is how long a connection waits for calls to end before it is closed, since those that it
// has read in part may not.
const roomWithin = time.Second

// Read implements [net.Conn]. It returns once there is room for what it has read.
func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	a.in.pass(b[:n])
	if a.hasRoom() {
		return n, err
	}
	late := time.NewTimer(roomWithin)
	defer late.Stop()
	for !a.hasRoom() {
		select {
		case <-a.less:
		case <-time.After(10 * time.Millisecond): // another connection may have made room
		case <-late.C:
			_ = a.Close()
			return 0, errRoom
		}
	}
	return n, err
}

// Write implements [net.Conn].
func (a *arriving) Write(b []byte) (int, error) {
	n, err := a.Conn.Write(b)
	a.out.pass(b[:n])
	return n, err
}

func (a *arriving) hasRoom() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of == nil || a.fits(a.held+a.calls)
}

// begun notes that the client has begun a call.
func (a *arriving) begun(stream uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of != nil && stream > a.last {
		a.last, a.of[stream] = stream, 0
	}
}

// came counts n more bytes of a call, unless it has ended: then nobody keeps them.
func (a *arriving) came(stream uint32, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was, open := a.of[stream]; open {
		a.of[stream] = was + int64(n)
		a.hold(int64(n))
	}
}

// gone uncounts a call that its client has reset.
func (a *arriving) gone(stream uint32, reset bool) {
	if reset {
		a.answered(stream, true)
	}
}

// answered uncounts a call whose answer, or its end by the server, has been sent.
func (a *arriving) answered(stream uint32, _ bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hold(-a.of[stream])
	delete(a.of, stream)
	select {
	case a.less <- struct{}{}:
	default: // it has a value already
	}
}

// hold counts n more bytes. The lock is held.
func (a *arriving) hold(n int64) {
	a.held += n
	a.room.coming.Add(n)
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
	if n > 0 && !a.fits(a.held+a.calls) {
		a.calls -= n
		a.room.coming.Add(-n)
		return false
	}
	return true
}

// Close implements [net.Conn].
func (a *arriving) Close() error {
	a.mu.Lock()
	a.hold(-a.held)
	a.of = nil
	a.mu.Unlock()
	return a.Conn.Close()
}

// RemoteAddr implements [net.Conn]. A call finds its connection by this address.
func (a *arriving) RemoteAddr() net.Addr { return whence{a.Conn.RemoteAddr(), a} }

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
