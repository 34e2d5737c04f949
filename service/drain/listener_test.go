package drain_test

import (
	"errors"
	"net"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/service/drain"
)

// TestEmpty tells a listener to stop while connections wait for it: all are
// accepted, and then it is closed.
func TestEmpty(t *testing.T) {
	ln := freeport.Listen(t)
	const clients = 100
	for range clients {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	queue := drain.NewListener(ln)
	if !queue.Empty() {
		t.Fatal("a listener of the kernel cannot be emptied")
	}
	accepted := 0
	for {
		conn, err := queue.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			break
		}
		conn.Close()
		accepted++
	}
	if accepted != clients {
		t.Errorf("%d of %d were accepted", accepted, clients)
	}
	if conn, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// TestNoDeadlines leaves a listener that knows none as it is.
func TestNoDeadlines(t *testing.T) {
	ln := freeport.Listen(t)
	defer ln.Close()
	if drain.NewListener(struct{ net.Listener }{ln}).Empty() {
		t.Error("a listener without deadlines was emptied")
	}
}
