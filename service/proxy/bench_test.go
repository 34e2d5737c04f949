package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/cputime"
)

// BenchmarkFrameFlood measures a client that sends HTTP/2 frames which ask for nothing: cpu-ns/op
// is the CPU time of the proxy's process for a frame. The client is a process of its own.
func BenchmarkFrameFlood(b *testing.B) {
	for _, kind := range []string{"PING", "SETTINGS", "CONTINUATION"} {
		b.Run(kind, func(b *testing.B) {
			f := start(b, mustURL(b, "http://upstream"), 0, yaml(b, "rules: [{name: site, key: [ip], limits: 1 per hour}]"), httplimit.ClientIP{})
			b.ResetTimer()
			before := cputime.Used(b)
			out, err := child(b, f.address, kind, strconv.Itoa(b.N)).CombinedOutput()
			used := cputime.Used(b) - before
			b.StopTimer()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
		})
	}
}

// flood sends n frames, and returns when the server has read them or has closed the
// connection.
func flood(address, kind string, n int) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	out := bufio.NewWriter(conn)
	fmt.Fprint(out, http2.ClientPreface)
	f := http2.NewFramer(out, conn)
	send := func() error { return f.WritePing(false, [8]byte{1}) }
	switch kind {
	case "SETTINGS":
		send = func() error { return f.WriteSettings() }
	case "CONTINUATION":
		send = func() error { return f.WriteContinuation(1, false, nil) }
	}
	_ = f.WriteSettings() // to a buffer
	if kind == "CONTINUATION" {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}) // as above
	}
	read := make(chan error, 1)
	go func() { // until the connection ends
		_, err := io.Copy(io.Discard, conn)
		read <- err
	}()
	for range n {
		if send() != nil {
			break // the server has closed it
		}
	}
	_ = f.WriteRawFrame(http2.FrameData, 0, 0, nil) // on no stream, an error that ends the connection
	_ = out.Flush()                                 // as above
	<-read
	return nil
}

func child(b *testing.B, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	c := exec.CommandContext(b.Context(), self)
	c.Env = append(os.Environ(), "STINT_BENCH="+strings.Join(args, " "))
	return c
}

// bench is the main of a child process.
func bench(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	return flood(args[0], args[1], n)
}
