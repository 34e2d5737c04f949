package main_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestOddUpstream has a server behind that answers with a status that there is not, and
// with more than it announced: clients get 502, and the log has a line of its own form,
// without what the server sent.
func TestOddUpstream(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				conn.Close()
				continue
			}
			answer := "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n"
			if r.URL.Path == "/more" {
				answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nSet-Cookie: session=secret\r\n\r\n"
			}
			_, _ = io.WriteString(conn, answer) // the proxy may have closed it
		}
	}()
	p := launch(t, "proxy", "proxy", "--admin", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--upstream", "http://"+ln.Addr().String(), "--limit", "1000/s")
	p.listening()
	for path, want := range map[string]int{"/odd": http.StatusBadGateway, "/more": http.StatusOK} {
		answer, err := http.Get(p.front + path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
		}
	}
	p.waitFor("Unsolicited response")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(p.log()) {
		if !strings.HasPrefix(line, "time=") || strings.Contains(line, "secret") || strings.Contains(line, "panic") {
			t.Errorf("the log has %s", line)
		}
	}
}
