package main_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// asks sends one request from an address of this machine and returns the status, or ""
// where the connection ends without an answer.
func asks(t *testing.T, from, network, address, begin string) (status string) {
	t.Helper()
	dialer := net.Dialer{Timeout: patience}
	if network == "tcp" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := dialer.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience)) // or the test hangs
	if _, err := io.WriteString(conn, begin+"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
		return ""
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body) // the status says it
	return strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(body[:min(len(body), 40)]))))
}

// TestProxyProtocol puts the real HAProxy in front, which passes clients on with
// version 1 and 2, and connects past it.
func TestProxyProtocol(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Real-Ip")) }))
	defer behind.Close()
	s := startStint(t, "proxy", "--listen", "127.0.0.1:0", "--upstream", behind.URL, "--limit", "2/1h", "--proxy-protocol", "127.0.0.1")
	v1, v2 := freeport.Addr(t), freeport.Addr(t)
	config := fmt.Sprintf("defaults\n mode tcp\n timeout connect 9s\n timeout client 9s\n timeout server 9s\n"+
		"listen one\n bind %s\n server a %s send-proxy\nlisten two\n bind %s\n server a %s send-proxy-v2\n", v1, host(s.front), v2, host(s.front))
	balancer := exec.Command(need.Program(t, "haproxy"), "-db", "-f", disk.Write(t, t.TempDir()+"/haproxy.cfg", config))
	if err := balancer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = balancer.Process.Kill(); _ = balancer.Wait() })
	for _, address := range []string{v1, v2} {
		await.Until(t, "haproxy listens", func() bool {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				_ = conn.Close() // it listens
			}
			return err == nil
		})
	}
	for _, c := range []struct{ name, from, to, begin, want string }{
		{"a client by version 1", "127.0.0.2", v1, "", "200 127.0.0.2"},
		{"the same by version 2", "127.0.0.2", v2, "", "200 127.0.0.2"},
		{"its third", "127.0.0.2", v1, "", "429"},
		{"another client", "127.0.0.3", v2, "", "200 127.0.0.3"},
		{"past the balancer", "127.0.0.4", host(s.front), "", "200 127.0.0.4"},
		{"a client that claims to be a balancer", "127.0.0.4", host(s.front), "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", ""},
		{"the balancer without a header", "127.0.0.1", host(s.front), "", ""},
		{"the balancer with half a header", "127.0.0.1", host(s.front), "PROXY TCP4 10.0.0.1\r\n", ""},
		{"the balancer about itself", "127.0.0.1", host(s.front), "PROXY UNKNOWN\r\n", "200 127.0.0.1"},
	} {
		if got := asks(t, c.from, "tcp", c.to, c.begin); got != c.want && (c.want != "429" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	s.waitFor("its address is not in --proxy-protocol")
}

// TestProxyProtocolOfServe asks a service whose callers all come through a balancer: over
// HTTP and gRPC, with TLS after the header.
func TestProxyProtocolOfServe(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir+"/cert.pem", dir+"/key.pem", 1)
	s := startServe(t, "--limit", "1000/1h", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--proxy-protocol", "127.0.0.1", "--tls-cert", dir+"/cert.pem", "--tls-key", dir+"/key.pem")
	at := s.at("interface=grpc")
	for _, c := range []struct {
		header string
		passes bool
	}{{"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n", true}, {"", false}} {
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				_, err = io.WriteString(conn, c.header)
			}
			return conn, err
		}
		client := &http.Client{Timeout: patience, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
		}}
		answer, err := client.Get("https://" + host(s.front) + "/livez")
		if passes := err == nil; passes != c.passes {
			t.Errorf("HTTP after %q: %v", c.header, err)
		} else if passes {
			_ = answer.Body.Close() // it is there
		}
		client.CloseIdleConnections()
		conn, err := grpc.NewClient("passthrough:///"+at, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
		if err != nil {
			t.Fatal(err)
		}
		_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), envoyRequest("serve", question{map[string]string{"user": "ann"}, 1}))
		if passes := err == nil; passes != c.passes {
			t.Errorf("gRPC after %q: %v", c.header, err)
		}
		_ = conn.Close() // the answer was what matters
	}
}

// TestSockets has the proxy listen on a Unix socket, and ask a server on another.
func TestSockets(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.Listen("unix", dir+"/app.sock")
	if err != nil {
		t.Fatal(err)
	}
	behind := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host, r.URL) })}}
	behind.Start()
	defer behind.Close()
	startStint(t, "proxy", "--listen", "unix:"+dir+"/stint.sock", "--upstream", "unix:"+dir+"/app.sock", "--limit", "2/1h", "--key", "none")
	for _, want := range []string{"200 h/", "200 h/", "429"} {
		if got := asks(t, "", "unix", dir+"/stint.sock", ""); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
