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

// Bounds of messages that are on their way: a call has room for the length that its client
// names, and many may be begun and not ended. What has come counts.
const (
	// mostComing is how much there may be of them at all connections, in bytes, and
	// comingParts the part of what is free that one connection may have.
	mostComing  = 256 << 20
	comingParts = 4
	// leastComing is what a connection may have in any case.
	leastComing = 1 << 20
)

var errRoom = errors.New("too much of too many calls is on its way")

// An arrivals has the messages that are on their way at all connections of a listener.
type arrivals struct {
	net.Listener
	coming atomic.Int64
	read   time.Duration // a call takes no longer
}

// Accept implements [net.Listener].
func (r *arrivals) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &arriving{Conn: c, room: r, began: time.Now()}, nil
}

// An arriving connection counts what has come, but for messages that are whole. What is
// neither, such as headers, counts for as long as a call may take, up to twice that.
type arriving struct {
	net.Conn
	room *arrivals

	mu          sync.Mutex
	began       time.Time // of now
	now, before int64     // bytes in two stretches of time; never below 0 together
}

// Read implements [net.Conn].
func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if held := a.add(int64(n)); held > leastComing && held > (mostComing-a.room.coming.Load()+held)/comingParts {
		_ = a.Close()
		return 0, errRoom
	}
	return n, err
}

// Close implements [net.Conn].
func (a *arriving) Close() error {
	a.mu.Lock()
	a.room.coming.Add(-a.now - a.before)
	a.now, a.before = 0, 0
	a.mu.Unlock()
	return a.Conn.Close()
}

// RemoteAddr implements [net.Conn]. Calls find their connection by it.
func (a *arriving) RemoteAddr() net.Addr { return whence{a.Conn.RemoteAddr(), a} }

// add counts bytes, or with n < 0 those of a message that is whole, and returns how many
// the connection holds.
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
	held = a.now + a.before
	a.room.coming.Add(held - was)
	return held
}

// A whence is the address of a client, with its connection.
type whence struct {
	net.Addr
	conn *arriving
}

// arrived notes that the message of a call is whole.
func arrived(ctx context.Context, m proto.Message) {
	if p, ok := peer.FromContext(ctx); ok {
		if from, ok := p.Addr.(whence); ok {
			from.conn.add(-int64(proto.Size(m)))
		}
	}
}
