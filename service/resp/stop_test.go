package resp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/service/resp"
)

// A backlog is a listener with connections that wait to be accepted. As that of a
// kernel, it resets those that wait when it is closed.
type backlog struct {
	waiting chan net.Conn
	closed  chan struct{}

	mu    sync.Mutex
	late  <-chan time.Time // when the deadline is over
	moved chan struct{}    // closed when there is another
}

func newBacklog(clients int) (b *backlog, theirs []net.Conn) {
	b = &backlog{waiting: make(chan net.Conn, clients), closed: make(chan struct{}), moved: make(chan struct{})}
	for range clients {
		ours, their := net.Pipe()
		b.waiting <- ours
		theirs = append(theirs, their)
	}
	return b, theirs
}

func (b *backlog) Addr() net.Addr { return &net.TCPAddr{} }

func (b *backlog) SetDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.moved)
	b.moved, b.late = make(chan struct{}), nil
	if !t.IsZero() {
		b.late = time.After(time.Until(t))
	}
	return nil
}

func (b *backlog) Accept() (net.Conn, error) {
	time.Sleep(time.Microsecond) // what is to happen now happens first
	for {
		b.mu.Lock()
		late, moved := b.late, b.moved
		b.mu.Unlock()
		select {
		case <-b.closed:
			return nil, net.ErrClosed
		case c := <-b.waiting:
			return c, nil
		case <-late:
			return nil, os.ErrDeadlineExceeded
		case <-moved:
		}
	}
}

func (b *backlog) Close() error {
	select {
	case <-b.closed:
		return nil
	default:
	}
	close(b.closed)
	for len(b.waiting) > 0 {
		_ = (<-b.waiting).Close()
	}
	return nil
}

// behind serves clients that wait to be accepted, until stop is called.
func behind(t *testing.T, waiting int) (server *resp.Server, clients []net.Conn, stop func() error) {
	server = prepare(t, resp.Options{})
	ln, clients := newBacklog(waiting)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, ln, 10*time.Second) }()
	return server, clients, func() error { cancel(); return <-done }
}

// TestStopLosesNobody stops a server while clients wait to be accepted: all are,
// and are answered what they have asked, or ask within a moment, and then closed.
func TestStopLosesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := prepare(t, resp.Options{})
		ln, clients := newBacklog(40)
		answers := make(chan string, len(clients))
		for i, c := range clients {
			go func() {
				if i%2 == 0 { // as libraries do
					fmt.Fprint(c, "PING\r\n")
					hello := make([]byte, len("+PONG\r\n"))
					_, _ = io.ReadFull(c, hello)
					time.Sleep(500 * time.Millisecond)
				}
				fmt.Fprint(c, "ECHO hi\r\n")
				all, _ := io.ReadAll(c)
				answers <- string(all)
			}()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := server.Serve(ctx, ln, 10*time.Second); err != nil {
			t.Error(err)
		}
		for range clients {
			if got := <-answers; got != "$2\r\nhi\r\n" {
				t.Errorf("%q", got)
			}
		}
	})
}

// TestStopAnswersWhatArrived stops a server while a client sends command after
// command: what is taken from it is answered, the last before the end too.
func TestStopAnswersWhatArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, clients, stop := behind(t, 1)
		stopped := make(chan error, 1)
		asked, answered := 0, 0
		for answer := make([]byte, len("$2\r\nhi\r\n")); ; answered++ {
			if asked == 10 {
				go func() { stopped <- stop() }()
			}
			if _, err := fmt.Fprint(clients[0], "ECHO hi\r\n"); err != nil {
				break
			}
			asked++
			if _, err := io.ReadFull(clients[0], answer); err != nil {
				t.Errorf("command %d: %v", asked, err)
				break
			}
			time.Sleep(100 * time.Microsecond) // else no time passes
		}
		if asked < 10 || answered != asked {
			t.Errorf("%d of %d answered", answered, asked)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// TestHalfCommand: a command that has begun has ten seconds, however slowly its client goes
// on; a connection that says nothing stays.
func TestHalfCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, clients, stop := behind(t, 3)
		for i, begin := range []string{"", "*2\r\n$4\r\nECHO\r\n$60000\r\n", "*2\r\n$4\r\nECHO\r\n$900000\r\n"} {
			if begin == "" {
				continue
			}
			fmt.Fprint(clients[i], begin)
			defer clients[i].Close()
			go func() {
				for range 100 {
					time.Sleep(time.Second)
					if _, err := fmt.Fprint(clients[i], "x"); err != nil {
						return
					}
				}
			}()
		}
		time.Sleep(11 * time.Second)
		if n := server.Conns(); n != 1 {
			t.Errorf("%d connections are open, want that which says nothing", n)
		}
		answer := make([]byte, len("$2\r\nhi\r\n"))
		fmt.Fprint(clients[0], "ECHO hi\r\n")
		if _, err := io.ReadFull(clients[0], answer); err != nil {
			t.Error(err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
