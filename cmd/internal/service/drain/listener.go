package drain

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

const (
	// empty is how long nothing comes from a queue that is empty; tries is how
	// often, since a wait may be over before it was begun.
	empty = 200 * time.Microsecond
	tries = 3
	// bound ends the wait for an empty queue where clients keep coming: what is
	// left then has come in the last moment.
	bound = 250 * time.Millisecond
)

// deadlines are what listeners of the kernel have, and those in front of them
// that pass them on.
type deadlines interface{ SetDeadline(t time.Time) error }

// A Listener accepts the connections that wait and then closes, after Empty. Accept
// is for one goroutine.
type Listener struct {
	net.Listener
	until atomic.Pointer[time.Time] // set by Empty
}

// NewListener returns a Listener in front of another.
func NewListener(ln net.Listener) *Listener { return &Listener{Listener: ln} }

// Empty has Accept return what waits to be accepted, then close the listener and
// return [net.ErrClosed]. It reports false, and does nothing, where the listener
// has no deadlines.
func (l *Listener) Empty() bool {
	under, ok := l.Listener.(deadlines)
	if !ok || under.SetDeadline(time.Time{}) != nil {
		return false
	}
	until := time.Now().Add(bound)
	l.until.Store(&until)
	_ = under.SetDeadline(time.Now()) // wakes Accept
	return true
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	for waited := 0; ; {
		until := l.until.Load()
		if until != nil {
			if waited == tries || time.Now().After(*until) {
				_ = l.Close()
				return nil, net.ErrClosed
			}
			_ = l.Listener.(deadlines).SetDeadline(time.Now().Add(empty)) // Empty has set one
		}
		conn, err := l.Listener.Accept()
		var late net.Error
		if err == nil || !errors.As(err, &late) || !late.Timeout() {
			return conn, err
		}
		if until != nil {
			waited++
		}
	}
}
