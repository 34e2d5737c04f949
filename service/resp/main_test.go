package resp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/resp"
	"github.com/stint-dev/stint/service/rules"
)

func TestMain(m *testing.M) { leaktest.Main(m, goleak.Find) }

const someRules = `
rules:
  - name: login
    match: {path: /login}
    key: [ip]
    limits: ["2 per hour sliding_log"]
  - name: keys
    match: {key: true}
    key: [key]
    limits: ["3 per hour"]
  - name: named
    match: {header.x-api-key: true}
    key: [header.x-api-key]
    limits: ["1 per hour"]
  - name: priced
    match: {path: /priced}
    key: [user]
    limits: ["10 per hour"]
    cost: {attribute: price, default: 5, max: 10}
  - name: queue
    match: {path: /queue}
    key: [ip]
    limits: ["1/h burst 5 leaky_queue"]
  - name: pool
    match: {path: /gpu}
    key: []
    limits: 1 in flight
  - name: work
    match: {path: /work}
    key: [user]
    limits: ["10_000 per hour"]
  - name: requests
    match: {path: /work}
    key: [user]
    limits: ["50 per hour"]
`

// start serves on a free port until the test ends.
func start(t testing.TB, o resp.Options) (address string, server *resp.Server) {
	t.Helper()
	server = prepare(t, o)
	ln := freeport.Listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, ln, time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String(), server
}

// prepare returns a server of some rules in memory, where no time passes.
func prepare(t testing.TB, o resp.Options) *resp.Server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	file, err := rules.Decode("rules.yaml", []byte(someRules))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixNano() // as it stays, or a busy machine tells other times than the transcripts
	store := memstore.New(memstore.Options{Now: func() int64 { return now }})
	if o.Source, err = rules.Open(store, "", file, rules.Options{Log: log}); err != nil {
		t.Fatal(err)
	}
	o.Store, o.Version = store, "0.0.0"
	if o.Log == nil {
		o.Log = log
	}
	if o.Observer == nil {
		o.Observer = observe.New(observe.Options{})
		t.Cleanup(o.Observer.Close)
	}
	t.Cleanup(func() { _ = store.Close() })
	return resp.New(o)
}

// dial connects without a client library.
func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// says sends a command on a connection, and wants a line for it.
func says(t testing.TB, c net.Conn, command, want string) {
	t.Helper()
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len(want)+len("\r\n"))
	if _, err := io.ReadFull(c, line); err != nil || string(line) != want+"\r\n" {
		t.Fatalf("%s: %q, %v; want %s", command, line, err, want)
	}
}

// talk sends what it is given and returns all that comes until the server
// closes, which QUIT makes it do.
func talk(t testing.TB, address, send string) string {
	t.Helper()
	c := dial(t, address)
	go func() { _, _ = io.WriteString(c, send) }()
	all, err := io.ReadAll(c)
	if err != nil {
		return fmt.Sprintf("%sthen %v", all, err)
	}
	return string(all)
}
