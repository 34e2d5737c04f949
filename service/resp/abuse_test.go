package resp_test

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/service/resp"
)

// A client that sends and never reads is cut off; others go on.
func TestSlowReader(t *testing.T) {
	t.Parallel() // it waits
	address, server := start(t, resp.Options{Write: 2 * time.Second})
	c := dial(t, address)
	go func() {
		line := strings.Repeat("COMMAND LIST\r\n", 1000)
		for {
			if _, err := io.WriteString(c, line); err != nil {
				return
			}
		}
	}()
	await.Until(t, "the slow reader cut off", func() bool {
		if got := talk(t, address, "PING\r\nQUIT\r\n"); got != "+PONG\r\n+OK\r\n" {
			t.Fatalf("another client: %q", got)
		}
		return server.Conns() == 0
	})
}

// A connection that says nothing is closed, as is one that begins and stops.
func TestIdle(t *testing.T) {
	address, server := start(t, resp.Options{Idle: 30 * time.Millisecond})
	silent, stopped := dial(t, address), dial(t, address)
	if _, err := io.WriteString(stopped, "*2\r\n$4\r\nEC"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{silent, stopped} {
		if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
			t.Errorf("%q, %v", rest, err)
		}
	}
	await.Until(t, "both gone", func() bool { return server.Conns() == 0 })
}

func TestMaxConns(t *testing.T) {
	address, server := start(t, resp.Options{MaxConns: 2})
	var open []net.Conn
	for range 2 {
		c := dial(t, address)
		open = append(open, c)
		says(t, c, "PING", "+PONG")
	}
	if server.Conns() != 2 {
		t.Errorf("%d connections", server.Conns())
	}
	if got, _ := io.ReadAll(dial(t, address)); string(got) != "-ERR max number of clients reached\r\n" {
		t.Errorf("%q", got)
	}
	for _, c := range open {
		_ = c.Close() // this is the point
	}
	await.Until(t, "they are gone", func() bool { return server.Conns() == 0 })
	if got := talk(t, address, "PING\r\nQUIT\r\n"); got != "+PONG\r\n+OK\r\n" {
		t.Errorf("after the flood: %q", got)
	}
}

// Connections that come and go at once leave nothing behind.
func TestRapidResets(t *testing.T) {
	address, server := start(t, resp.Options{})
	for i := range 500 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\na"[:i%27])
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	await.Until(t, "all gone", func() bool { return server.Conns() == 0 })
	if got := talk(t, address, "PING\r\nQUIT\r\n"); got != "+PONG\r\n+OK\r\n" {
		t.Errorf("%q", got)
	}
}

// Callers may make up any number of limits: none locks another key out, and those of
// one period share a key's state, so that no number of them mints.
func TestCallersLimits(t *testing.T) {
	address, _ := start(t, resp.Options{})
	var b strings.Builder
	const n = 3000
	for i := range n {
		fmt.Fprintf(&b, "CL.THROTTLE k%d 5 %d 100000\r\n", i, 1+i)
	}
	b.WriteString("CL.THROTTLE k0 5 1 100000\r\n")
	for i := range n { // of which two more pass: as many as the first limit has left
		fmt.Fprintf(&b, "CL.THROTTLE k0 3 %d 100000\r\n", 1+i)
	}
	b.WriteString("CL.THROTTLE k0 5 1 100000\r\nQUIT\r\n")
	got := talk(t, address, b.String())
	if strings.Contains(got, "-ERR") || strings.Count(got, "*5\r\n:0\r\n") != n+4 {
		t.Errorf("%d of %d pass: %q", strings.Count(got, "*5\r\n:0\r\n"), n+4, got[max(len(got)-80, 0):])
	}
	if !regexp.MustCompile(`\*5\r\n:0\r\n:6\r\n:1\r\n:-1\r\n:(500000|49\d\d\d\d)\r\n\+OK\r\n$`).MatchString(got) { // less what has passed
		t.Errorf("the first limit, again: %q", got[max(len(got)-80, 0):])
	}
}

// A connection that shows no token is closed, however much it says; one that
// has shown it stays.
func TestUnknown(t *testing.T) {
	t.Parallel() // it waits
	address, server := start(t, resp.Options{Unknown: 10 * time.Second, Admit: func(token string) bool { return token == "good" }})
	known := dial(t, address)
	says(t, known, "AUTH good", "+OK")
	silent, loud := dial(t, address), dial(t, address)
	go func() {
		for {
			if _, err := io.WriteString(loud, "PING\r\nAUTH bad\r\n"); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	for _, c := range []net.Conn{silent, loud} {
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Log(err) // it was cut while it spoke
		}
	}
	await.Until(t, "both gone", func() bool { return server.Conns() == 1 })
	says(t, known, "PING", "+PONG")
}

// TestTooLong sends commands that are too long: each is answered as wrong, and so are those
// of others that wait for answers on the connection.
func TestTooLong(t *testing.T) {
	array := func(args ...string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(args))
		for _, arg := range args {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
		}
		return b.String()
	}
	check := func(more ...string) string { return array(append([]string{"STINT.CHECK", "path", "/x"}, more...)...) }
	tooLong := []string{
		check("user", strings.Repeat("x", resp.MaxCommand)),
		check("user", strings.Repeat("x", 1<<20)),
		check("user", strings.Repeat("\r\n$1\r\n", 2<<20)),
		check(strings.Split(strings.Repeat("h,v,", 500), ",")[:1000]...),
		check("user", strings.Repeat("x", 40000), "agent", strings.Repeat("x", 40000)),
	}
	for cut := resp.MaxCommand - 120; cut < resp.MaxCommand; cut += 3 { // where the bound lies within a length
		tooLong = append(tooLong, check("user", strings.Repeat("x", cut), "agent", strings.Repeat("x", 90)))
	}
	address, _ := start(t, resp.Options{})
	wrong := fmt.Sprintf("-ERR a command has at most %d arguments and %d bytes\r\n", resp.MaxArgs, resp.MaxCommand)
	for i, command := range tooLong {
		if got := talk(t, address, array("PING")+command+array("PING")+command+array("QUIT")); got != "+PONG\r\n"+wrong+"+PONG\r\n"+wrong+"+OK\r\n" {
			t.Errorf("command %d, of %d bytes: %q", i, len(command), got[:min(len(got), 200)])
		}
	}
}
