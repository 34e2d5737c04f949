package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/testkit/wire"
)

// frames sends a request on a connection of its own.
func frames(t testing.TB, address string, r wire.Request) wire.Answer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return wire.Frames(conn, r, nil)
}

// TestOpaqueOverHTTP2 sends a :path that is no path.
func TestOpaqueOverHTTP2(t *testing.T) {
	f := start(t, behind(t), 0, yaml(t, blocks), httplimit.ClientIP{})
	for path, want := range map[string]string{"/": "200", "/login": "403", "a:http://h/login": "400", "a:b:/login": "400", "*": "400"} {
		if got := frames(t, f.address, wire.Get(path)).Status; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// around are values that are k1 after HTTP/1.1, by which the proxy asks the upstream, or to the
// upstream itself.
var around = []string{"k1", "k1 ", "k1   ", "k1\t", " k1", "\tk1", "  k1 \t", "k1\xa0", "\x85k1"}

// lenient is a server that takes any request.
func lenient(t *testing.T) *url.URL {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() }) // nothing is left to be sent
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for line := "-"; line != "\r\n" && line != ""; {
					line, _ = in.ReadString('\n') // "" at the end
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") // or it has gone
			}()
		}
	}()
	return mustURL(t, "http://"+ln.Addr().String())
}

// TestBlanksOverHTTP2 sends one key in many spellings: net/http keeps the blanks
// around a value of HTTP/2, and blanks in the query. The server behind reads one key.
func TestBlanksOverHTTP2(t *testing.T) {
	for _, test := range []struct {
		rule   string
		fields func(value string) wire.Request
	}{
		{"key: [header.x-api-key]", func(v string) wire.Request { return wire.Get("/x", "x-api-key", v) }},
		{"key: [query.api_key]", func(v string) wire.Request { return wire.Get("/x?api_key=" + v) }},
		{"key: [query.api_key]", func(v string) wire.Request { return wire.Get("/x?a=b" + v + "&api_key=k1") }},
		{"key: [cookie.id]", func(v string) wire.Request { return wire.Get("/x", "cookie", "id="+v) }},
		{"key: [path]", func(v string) wire.Request { return wire.Get("/" + v) }},
		{"key: [host]", func(v string) wire.Request {
			return wire.Get("/").With(":authority", v)
		}},
		{"key: [method]", func(v string) wire.Request {
			return wire.Get("/").With(":method", v)
		}},
	} {
		f := start(t, lenient(t), 0, yaml(t, "rules: [{name: a, "+test.rule+", limits: 3/h}]"), httplimit.ClientIP{}, proxy.Options{})
		got := make(map[string]int)
		for range 2 {
			for _, value := range around {
				got[frames(t, f.address, test.fields(value)).Status]++
			}
		}
		passed := got["200"]
		delete(got, "200")
		for status := range got {
			if status != "400" && status != "429" && status != "" {
				t.Errorf("%s: %s", test.rule, status)
			}
		}
		if passed == 0 || passed > 3 {
			t.Errorf("%s: %d passed, others %s", test.rule, passed, fmt.Sprint(got))
		}
	}
}

// TestBlankTargets sends targets that no upstream may get, whatever rules read.
func TestBlankTargets(t *testing.T) {
	f := start(t, behind(t), 0, yaml(t, "rules: [{name: a, key: [ip], limits: 1000/h}]"), httplimit.ClientIP{})
	for _, path := range []string{"/x?a HTTP/1.0", "/x y", "/x?a ", " /x", "/x\t", "/x?\x7f", "/x?a\x01"} {
		if got := frames(t, f.address, wire.Get(path)).Status; got != "400" && got != "" {
			t.Errorf("%q: %s", path, got)
		}
	}
	for _, method := range []string{"GET /admin HTTP/1.1", "GET ", "G\u00c9T", "GET:"} {
		fields := wire.Get("/x")
		fields = fields.With(":method", method)
		if got := frames(t, f.address, fields).Status; got != "400" && got != "" {
			t.Errorf("%q: %s", method, got)
		}
	}
}
