package rls_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stint-dev/stint/service/rls"
)

// A deaf connection reads nothing once it is made deaf, until it is closed.
type deaf struct {
	net.Conn
	now    *atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (d *deaf) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if d.now.Load() { // also what a read that had begun before brought: it may be many answers
		<-d.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

// A client that sends requests and reads no answers does not hold up other clients,
// and the server still stops in time.
func TestSlowReader(t *testing.T) {
	address, stop := start(t, service(t, rls.Options{}), rls.ServeOptions{Drain: 200 * time.Millisecond})
	var now atomic.Bool
	slow := client(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", address)
			return &deaf{Conn: c, now: &now, closed: make(chan struct{})}, err
		}))
	req := request("shop", "user", "ann")
	if _, err := slow.ShouldRateLimit(soon(t), req); err != nil {
		t.Fatal(err)
	}
	now.Store(true)
	ctx, cancel := context.WithTimeout(soon(t), 500*time.Millisecond)
	defer cancel()
	var unanswered atomic.Int64
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			if _, err := slow.ShouldRateLimit(ctx, req); status.Code(err) == codes.DeadlineExceeded {
				unanswered.Add(1)
			}
		})
	}
	other := client(t, address)
	for range 100 {
		if _, err := other.ShouldRateLimit(soon(t), req); err != nil {
			t.Fatalf("another client: %v", err)
		}
	}
	all.Wait()
	if unanswered.Load() != 500 {
		t.Errorf("%d of 500 calls went without an answer: nobody was slow", unanswered.Load())
	}
	_ = stop() // it ends; whether all had finished by then is up to who does not listen
}

// A client that begins a call and sends nothing of it is answered that its time is
// over.
func TestSlowCall(t *testing.T) {
	t.Parallel() // it waits
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{Read: 2 * time.Second})
	slow, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	for _, method := range []string{pb.RateLimitService_ShouldRateLimit_FullMethodName, healthpb.Health_Check_FullMethodName} {
		ctx := soon(t)
		call, err := slow.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		if err := call.RecvMsg(new(pb.RateLimitResponse)); status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
			t.Errorf("%s, of which nothing comes: %v", method, err)
		}
	}
	if _, err := client(t, address).ShouldRateLimit(soon(t), request("shop", "user", "ann")); err != nil {
		t.Error(err)
	}
}

// A rawConn is a connection of HTTP/2 that its test writes frame by frame.
type rawConn struct {
	net.Conn
	*http2.Framer
	fields *hpack.Encoder
	head   bytes.Buffer
}

func dialRaw(t *testing.T, address string) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	r := &rawConn{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	r.fields = hpack.NewEncoder(&r.head)
	_, err = conn.Write([]byte(http2.ClientPreface))
	if err := errors.Join(err, r.WriteSettings()); err != nil {
		t.Fatal(err)
	}
	return r
}

// call begins a call and sends bytes of its message.
func (r *rawConn) call(id uint32, end bool, message []byte) error {
	r.head.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", pb.RateLimitService_ShouldRateLimit_FullMethodName}, {":authority", "a"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = r.fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.head.Bytes(), EndHeaders: true})
	for piece := range slices.Chunk(message, 16<<10) {
		err = errors.Join(err, r.WriteData(id, false, piece))
	}
	if end {
		err = errors.Join(err, r.WriteData(id, true, nil))
	}
	return err
}

// TestMessagesByWhatComes begins large messages and does not end them: a connection is
// closed before it holds all the room for them, others are answered, and one that sends
// more than the room in whole messages, too.
func TestMessagesByWhatComes(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{Read: time.Minute, MaxStreams: 4000})
	flood := dialRaw(t, address)
	go func() { _, _ = io.Copy(io.Discard, flood) }()
	var err error
	sent, message := 0, append([]byte{0, 0, 0x3f, 0xff, 0xff}, make([]byte, 48<<10)...) // within the window that a stream has at first
	for id := uint32(1); id < 6000 && err == nil; id += 2 {
		err = flood.call(id, false, message)
		sent += len(message)
	}
	if err == nil {
		t.Errorf("%d bytes of calls that do not end are held", sent)
	}
	other := client(t, address)
	large := request("shop", "user", strings.Repeat("a", 1<<20))
	for range 80 {
		if _, err := other.ShouldRateLimit(soon(t), large); err != nil {
			t.Fatalf("whole messages: %v", err)
		}
	}
}

// TestResetCalls sends more over one connection than it has room for, in calls that are reset as soon as
// they are sent, as Envoy does when its clients leave: the connection stays open, and answers.
func TestResetCalls(t *testing.T) {
	address, _ := start(t, service(t, rls.Options{}), rls.ServeOptions{Read: time.Minute})
	conn := dialRaw(t, address)
	answered := make(chan error, 1)
	const last = 4001
	go func() {
		for {
			frame, err := conn.ReadFrame()
			if err != nil || frame.Header().StreamID == last && frame.Header().Flags.Has(http2.FlagHeadersEndStream) {
				answered <- err
				return
			}
		}
	}()
	data, err := proto.Marshal(request("shop", "user", strings.Repeat("a", 55_000)))
	if err != nil {
		t.Fatal(err)
	}
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
	for id := uint32(1); id < last; id += 2 {
		if err := errors.Join(conn.call(id, false, message), conn.WriteRSTStream(id, http2.ErrCodeCancel)); err != nil {
			t.Fatalf("after %d calls: %v", id/2, err)
		}
	}
	if err := conn.call(last, true, message); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
