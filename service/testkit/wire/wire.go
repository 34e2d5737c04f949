// Package wire sends requests as the bytes or frames that go over a connection, for
// tests of what two parties read: no client of net/http sends what these tests send.
package wire

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A Field is a field of a request. The names of method, target and host are those of
// HTTP/2.
type Field struct{ Name, Value string }

// Body is the name of the field that has the body.
const Body = ":body"

// A Request is the fields of a request, in order.
type Request []Field

// Get returns the fields of a GET, and more: name, value, name, value.
func Get(path string, more ...string) Request {
	return Request{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", path}}.And(more...)
}

// And appends fields.
func (r Request) And(more ...string) Request {
	for i := 0; i < len(more); i += 2 {
		r = append(r, Field{more[i], more[i+1]})
	}
	return r
}

// With returns a copy in which a field has another value.
func (r Request) With(name, value string) Request {
	r = append(Request(nil), r...)
	for i := range r {
		if r[i].Name == name {
			r[i].Value = value
		}
	}
	return r
}

// Value returns the first value of a name.
func (r Request) Value(name string) string {
	for _, f := range r {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// An Answer is what came back. Its status is empty where the server has reset the
// stream or ended the connection.
type Answer struct {
	Status string
	Header http.Header
	Body   []byte
}

// deadline ends a conversation that nobody ends: it is a socket.
const deadline = time.Minute

// Reached waits until a program listens.
func Reached(t testing.TB, address string) {
	t.Helper()
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close() // it was only to see
			return
		}
	}
	t.Fatalf("nobody listens at %s", address)
}

// Text sends a request over HTTP/1.1, and asks for the end of the connection.
func Text(conn net.Conn, r Request) (a Answer) {
	var out strings.Builder
	out.WriteString(r.Value(":method") + " " + r.Value(":path") + " HTTP/1.1\r\nHost: " + r.Value(":authority") + "\r\n")
	for _, f := range r {
		if !strings.HasPrefix(f.Name, ":") {
			out.WriteString(f.Name + ": " + f.Value + "\r\n")
		}
	}
	body := r.Value(Body)
	if body != "" {
		out.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	out.WriteString("Connection: close\r\n\r\n" + body)
	if r.Value("transfer-encoding") != "" {
		out.WriteString("0\r\n\r\n") // or everybody waits
	}
	_ = conn.SetDeadline(time.Now().Add(deadline))
	_, _ = io.WriteString(conn, out.String()) // the server may have ended it after the first line
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return a
	}
	defer answer.Body.Close()
	a.Status, a.Header = answer.Status[:min(3, len(answer.Status))], answer.Header
	if answer.StatusCode != http.StatusSwitchingProtocols {
		a.Body, _ = io.ReadAll(answer.Body) // what is there
	}
	return a
}

// Frames sends a request over HTTP/2, as the first of the connection. A body that is
// not nil follows it.
func Frames(conn net.Conn, r Request, body []byte) (a Answer) {
	var block, out bytes.Buffer
	headers := hpack.NewEncoder(&block)
	if text := r.Value(Body); text != "" {
		body = []byte(text)
	}
	for _, f := range r {
		if f.Name == Body {
			continue
		}
		_ = headers.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value}) // into memory
	}
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = framer.WriteSettings() // into memory, as what follows
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: body == nil, EndHeaders: true})
	if body != nil {
		_ = framer.WriteData(1, true, body)
	}
	_ = conn.SetDeadline(time.Now().Add(deadline))
	_, _ = conn.Write(out.Bytes()) // or there is nothing to read
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return a
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if a.Header == nil {
				a.Status, a.Header = frame.PseudoValue("status"), make(http.Header)
			}
			for _, f := range frame.RegularFields() {
				a.Header.Add(f.Name, f.Value)
			}
		case *http2.DataFrame:
			a.Body = append(a.Body, frame.Data()...)
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return a
		default:
			continue
		}
		if frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return a
		}
	}
}
