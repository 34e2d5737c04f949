package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// fewDescriptors runs the program with that many descriptors, and an address for
// operators, until the test ends.
func fewDescriptors(t *testing.T, n int, args string) *running {
	t.Helper()
	words := strings.Fields(args + " --admin 127.0.0.1:0")
	c := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, n), os.Args[0]}, words...)...)
	c.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
	return begin(t, words[0], c).listening()
}

// from asks on a connection of its own each time, from an address of this machine.
func from(ip string) *http.Transport {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}
}

// statusOf returns the status of what a URL answers, 0 if there is no answer.
func statusOf(t testing.TB, transport *http.Transport, url string) int {
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Get(url)
	if err != nil {
		t.Logf("%s: %v", url, err)
		return 0
	}
	_ = answer.Body.Close() // the status says it
	return answer.StatusCode
}

// lives asks whether operators are answered.
func (p *running) lives() {
	p.t.Helper()
	if s := statusOf(p.t, from("127.0.0.1"), p.admin+"/livez"); s != http.StatusOK {
		p.t.Errorf("liveness: %d", s)
	}
}

// TestFewDescriptors holds as many connections open as it gets, of a process
// with few descriptors: clients whose bodies do not come, and Redis clients
// that say nothing. Operators are answered all the same.
func TestFewDescriptors(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer behind.Close()
	dir := t.TempDir()
	rules := disk.Write(t, dir+"/rules.yaml", "rules: [{name: a, key: [ip], limits: 50/s burst 100 leaky_queue}]\n")
	token := disk.Write(t, dir+"/token", serveToken+"\n")
	for _, test := range []struct{ name, args, hello, later string }{
		{"proxy", "proxy -c " + rules + " --listen 127.0.0.1:0 --upstream " + behind.URL, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"resp", "serve -c " + rules + " --http 127.0.0.1:0 --resp 127.0.0.1:0 --token-file " + token, "PING\r\n", "PING\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := fewDescriptors(t, 256, test.args)
			address := host(p.front)
			if test.name == "resp" {
				address = p.at("interface=resp")
			}
			var open []net.Conn
			for range 300 {
				conn, err := net.DialTimeout("tcp", address, 5*time.Second)
				if err != nil {
					break // the backlog is full, which is as good
				}
				open = append(open, conn)
				fmt.Fprint(conn, test.hello)
			}
			for range 5 {
				p.lives()
			}
			for _, conn := range open {
				_ = conn.Close() // this is the point
			}
			await.Until(t, "a client is answered after the flood", func() bool { return answers(address, test.later) })
		})
	}
}

// answers reports whether a new client is answered.
func answers(address, request string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && line != ""
}

// TestFewDescriptorsHTTP2 sends requests that the server behind does not answer, 250 at
// once on one connection of HTTP/2: each would hold a connection to that server. Operators
// and other clients are answered all the same, and this client again afterwards.
func TestFewDescriptorsHTTP2(t *testing.T) {
	finish := make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-finish
		}
	}))
	defer behind.Close()
	defer end()
	p := fewDescriptors(t, 256, "proxy --limit 1000000/s --listen 127.0.0.1:0 --upstream "+behind.URL)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	flood := &http.Transport{Protocols: protocols}
	ask := func(path string) int { return statusOf(t, flood, p.front+path) }
	const streams = 250
	got := make(chan int, streams)
	ask("/") // one connection for all
	for range streams {
		go func() { got <- ask("/hold") }()
	}
	// 256 less 64, half of it for the server behind, and a quarter of that for one address.
	const held = 24
	for range streams - held {
		select {
		case s := <-got:
			if s != http.StatusServiceUnavailable {
				t.Errorf("beyond the bound: %d", s)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("more requests than one address may have are held")
		}
	}
	p.lives()
	if s := statusOf(t, from("127.0.0.2"), p.front+"/"); s != http.StatusOK {
		t.Errorf("another client: %d", s)
	}
	end()
	for range held {
		if s := <-got; s != http.StatusOK {
			t.Errorf("within the bound: %d", s)
		}
	}
	if s := ask("/"); s != http.StatusOK {
		t.Errorf("afterwards: %d", s)
	}
}

// TestProbesFindRoom fills the connections of operators with browsers that have
// asked and say nothing more: a probe finds room all the same, since those that are
// idle are let go.
func TestProbesFindRoom(t *testing.T) {
	need.Time(t)
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", operateRules))
	address := host(p.admin)
	for range 32 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: %s\r\n\r\n", address)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
	}
	await.Until(t, "a probe is answered", func() bool {
		status, _, _ := runStint(t, "health", p.admin)
		return status == 0
	})
}
