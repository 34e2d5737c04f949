package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// blackHole returns a loopback address at a port that neither takes nor refuses a
// connection: its listener's queue is full.
func blackHole(t *testing.T, host, port string) (address string) {
	t.Helper()
	var at syscall.SockaddrInet4
	copy(at.Addr[:], net.ParseIP(host).To4())
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	at.Port = number
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &at); err != nil {
		t.Skipf("a second loopback address, as Linux has: %v", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address = net.JoinHostPort(host, strconv.Itoa(bound.(*syscall.SockaddrInet4).Port))
	for range 8 {
		c, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Skip("the queue of a listener has no end here")
	return ""
}

// names answers questions for the addresses of any name, in this order.
func names(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		question := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(answerTo(question[:n], addresses), from)
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answerTo returns the answer to a question: A records, and nothing of other types.
func answerTo(question []byte, addresses []string) []byte {
	end := 12
	for question[end] != 0 { // labels of the name
		end += 1 + int(question[end])
	}
	end += 5
	out := append([]byte(nil), question[:end]...)
	binary.BigEndian.PutUint16(out[2:], 0x8180) // an answer, to a question that may recurse
	binary.BigEndian.PutUint16(out[6:], 0)
	binary.BigEndian.PutUint32(out[8:], 0)
	if binary.BigEndian.Uint16(question[end-4:]) != 1 {
		return out
	}
	binary.BigEndian.PutUint16(out[6:], uint16(len(addresses)))
	for _, a := range addresses {
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, net.ParseIP(a).To4()...)
	}
	return out
}

// TestDeadAddressFirst has a name with two addresses, the first of which does not
// answer: the second is tried in time.
func TestDeadAddressFirst(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	_, port, _ := net.SplitHostPort(server.Addr)
	dead := blackHole(t, "127.0.0.9", port)
	host, _, _ := net.SplitHostPort(dead)
	within, cancel := context.WithTimeout(ctx, 1900*time.Millisecond)
	defer cancel()
	conn, err := redisstore.Dial(within, names(t, host, "127.0.0.1"), net.JoinHostPort("redis.test", port))
	if err != nil {
		t.Fatalf("no connection to the address that is well: %v", err)
	}
	conn.Close()
}

// TestIPv6 connects to a server and to a cluster by addresses of IPv6.
func TestIPv6(t *testing.T) {
	need.Time(t)
	t.Parallel()
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		l.Close()
	}
	server := redistest.Start(t, "--bind", "127.0.0.1", "::1")
	_, port, _ := net.SplitHostPort(server.Addr)
	if err := decides(t, "redis://[::1]:"+port); err != nil {
		t.Errorf("one server: %v", err)
	}
	c := redistest.StartIPv6(t, 3)
	_, port, _ = net.SplitHostPort(c.Nodes[1].Addr)
	_, other, _ := net.SplitHostPort(c.Nodes[2].Addr)
	for _, url := range []string{"redis://[::1]:" + port, "redis://[::1]:" + port + ",[::1]:" + other} {
		store := open(t, url, redisstore.Options{})
		limit := bind(t, store, "1000/1h")
		for _, key := range spread() {
			layers := []stint.Layer{{Bound: limit, Key: key}, {Bound: limit, Key: "another"}}
			if d, err := store.Decide(ctx, meter.OpTake, layers, 1); err != nil || !d.Allowed {
				t.Errorf("a cluster: %+v, %v", d, err)
			}
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRedirectedNowhere has a node of a cluster that announces no address say that a
// slot has moved to a port: that is on the host of the URL.
func TestRedirectedNowhere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("a second loopback address, as Linux has: %v", err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	o, err := redisstore.ParseURL("redis://127.0.0.2:1")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := o.Dialer(ctx, "tcp", ":"+port)
	if err != nil {
		t.Fatalf("the host of the URL is not dialled: %v", err)
	}
	conn.Close()
}

// TestClusterKnownLate has nodes that do not tell at first who serves what: what looks like
// one server is known for a cluster when they do.
func TestClusterKnownLate(t *testing.T) {
	need.Time(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	tell := func(sign string) {
		for _, node := range c.Nodes {
			node.CLI(t, "acl", "setuser", "default", sign+"cluster|slots")
		}
	}
	tell("-")
	store := open(t, c.Nodes[0].URL(), redisstore.Options{})
	limit := bind(t, store, "1000/1000h")
	decided := func() (n int) {
		for i := range 30 {
			_, err := limit.Decide(ctx, meter.OpTake, fmt.Sprint("key", i), 1)
			if err == nil {
				n++
			} else if !errors.Is(err, redisstore.ErrNotExecuted) {
				t.Errorf("told %v", err)
			}
		}
		return n
	}
	if n := decided(); n == 0 || n == 30 {
		t.Fatalf("%d of 30 keys are at the one node that is known", n)
	}
	tell("+")
	eventually(t, "the store does not take it for a cluster", func() bool { return decided() == 30 })
}

// TestSlotsOutOfRange has a cluster say slots that there are not.
func TestSlotsOutOfRange(t *testing.T) {
	for text, want := range map[string]bool{
		":0\r\n:16383": true, ":0\r\n:16384": false, ":0\r\n:81919": false, ":65536\r\n:65540": false, ":-1\r\n:5": false, ":7\r\n:6": false, ":7\r\n:7": true,
	} {
		at := impostor(t, "CLUSTER", "*1\r\n*3\r\n"+text+"\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$1\r\na\r\n")
		c := redis.NewClient(&redis.Options{Addr: at})
		all, err := redisstore.NewDriver(c).(redisstore.Topology).Slots(ctx)
		c.Close()
		if (err == nil) != want || want != (len(all) == 1) {
			t.Errorf("%q: %v, %v", text, all, err)
		}
	}
}

// TestRedirects has the nodes of a cluster send a call to each other without end: it is
// sent on three times, and was not executed.
func TestRedirects(t *testing.T) {
	all := farNodes(t)
	for _, f := range all {
		f.does.Store(farRedirects)
	}
	store := openPlain(t, redisstore.Options{URL: fmt.Sprint("redis://", all[0].addr, ",", all[1].addr), Timeout: within})
	_, err := bind(t, store, short).Decide(ctx, meter.OpTake, "call-1", 1)
	if n := all[0].arrived["call-1"] + all[1].arrived["call-1"]; n != 1+3 || !errors.Is(err, redisstore.ErrNotExecuted) {
		t.Errorf("it came %d times: %v", n, err)
	}
	shows(t, "redirections of a call, in a cluster", "3")
}

// TestUnknownEndpoint has the nodes of a cluster announce nothing where a host name is
// wanted: they are found at the host of the URL, and each serves its keys. Of nodes that
// announce no address at all, the error says what to set.
func TestUnknownEndpoint(t *testing.T) {
	need.Time(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	prefer := func(what string) {
		for _, s := range c.Nodes {
			s.CLI(t, "config", "set", "cluster-preferred-endpoint-type", what)
		}
	}
	prefer("hostname")
	b := bind(t, open(t, "redis://"+c.Nodes[0].Addr, redisstore.Options{}), "1/1h")
	for i := range 60 {
		if d := take(t, b, fmt.Sprint("key ", i), 1); !d.Allowed {
			t.Errorf("key %d: %+v", i, d)
		}
	}
	prefer("unknown-endpoint")
	o, err := redisstore.ParseURL("redis://" + c.Nodes[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redisstore.Connect(ctx, o); err == nil || !strings.Contains(err.Error(), "cluster-preferred-endpoint-type") {
		t.Errorf("nodes without an address: %v", err)
	}
}
