package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// TestFewDescriptorsDials has clients leave at once while the server behind accepts no
// connection: each request leaves a connection behind that is being made. Operators are
// answered all the same, and everybody once the server accepts.
func TestFewDescriptorsDials(t *testing.T) {
	need.Time(t)
	behind := stalled(t)
	at := fewDescriptors(t, 256, "proxy --limit 1000000/s --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream http://"+behind.Addr().String())
	for i := range 400 {
		conn, err := net.DialTimeout("tcp", at["address"], patience)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		before := dialing(t, behind)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		await.Until(t, "it is on its way to the server behind, or refused", func() bool {
			now := dialing(t, behind)
			before = min(before, now)
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, _ := conn.Read(make([]byte, 1))
			return now > before || n > 0
		})
		_ = conn.Close()
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	status := func(url string) int {
		answer, err := client.Get(url)
		if err != nil {
			t.Log(err)
			return 0
		}
		_ = answer.Body.Close() // the status says it
		return answer.StatusCode
	}
	if s := status("http://" + at["admin"] + "/livez"); s != http.StatusOK {
		t.Errorf("liveness: %d", s)
	}
	open, err := os.ReadDir("/proc/" + at["pid"] + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d descriptors are in use", len(open))
	if most := 96 + 64; len(open) > most { // connections to the server behind, and those that are reserved
		t.Errorf("%d descriptors are in use, want at most %d", len(open), most)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(behind) }()
	defer server.Close()
	await.Until(t, "it answers afterwards", func() bool { return status("http://"+at["address"]+"/") == http.StatusOK })
}

// dialing returns how many connections to a listener are being made.
func dialing(t *testing.T, to net.Listener) int {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(table), fmt.Sprintf("0100007F:%04X 02 ", to.Addr().(*net.TCPAddr).Port)) // SYN_SENT
}

// stalled returns a listener whose queue of connections is full.
func stalled(t *testing.T) net.Listener {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	ln, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	for range 4 {
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
		stop()
		if err != nil {
			return ln
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal(fmt.Sprint("the queue of ", ln.Addr(), " does not fill"))
	return nil
}
