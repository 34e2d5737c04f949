// Package fiberlimit puts the guards of package httplimit in front of the handlers of fiber v3:
//
//	app := fiber.New()
//	app.Use("/*", fiberlimit.Guard(httplimit.ByIP("site", "100/min")))
//
// The pattern /* is needed: without a pattern, fiber calls no middleware for a target that does not
// begin with a slash, but it does call handlers of /*.
//
// A denied request is answered as httplimit does, and no further handler is called. The guard sees
// a copy of the request in the form of net/http, since fiber reuses the memory of requests. It has
// every line of a repeated header, in order; the body is read only if rules look into it.
//
// The path is the one by which fiber finds the handler: in lower case and without a slash at the
// end, unless fiber.Config says CaseSensitive or StrictRouting, decoded under UnescapePath, and
// without what follows #. So write the paths of rules in lower case, or set ignore_path_case in the
// rules file.
//
// A guard that reads the status of the answer (Options.Settle) also sees the status of an error
// that a handler returns. Rules on the response see the body once the handler has returned, but not
// a body that is a stream. Under a limit in flight, the request is in flight until a streamed body
// or a connection that the handler takes over ends; under fasthttp's KeepHijackedConns, until the
// handler of the connection returns. If the client of a streamed body leaves, that is then: nobody
// says when the function of SendStreamWriter returns, so let it return at the first Flush that fails.
//
// [httplimit.RouteKey] finds no route under fiber, which does not know it while middleware runs.
// Use a guard for each route instead, as an argument of app.Get.
//
// Price: that of the guard, and a dozen allocations for the copy. A guard may be used by many
// goroutines at once.
package fiberlimit

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v3"
	fiberstrings "github.com/gofiber/utils/v2/strings"
)

// Guard returns a handler that lets a request pass if the guard does.
func Guard(guard func(http.Handler) http.Handler) fiber.Handler {
	guarded := guard(http.HandlerFunc(pass))
	return func(c fiber.Ctx) error {
		r, err := request(c)
		if err != nil {
			return fiber.ErrBadRequest
		}
		header, ok := c.Locals(headerKey{}).(http.Header)
		if !ok {
			header = http.Header{}
			c.Locals(headerKey{}, header)
		}
		a := &answer{c: c, header: header}
		guarded.ServeHTTP(a, r.WithContext(context.WithValue(c.Context(), answerKey{}, a)))
		a.flush()
		return a.err
	}
}

// answerKey is the key of the answer in the context of a request.
type answerKey struct{}

// headerKey is the key of the header that all guards of a request answer in.
type headerKey struct{}

// pass is the handler behind the guard: it calls the next handler of fiber.
func pass(w http.ResponseWriter, r *http.Request) {
	a := r.Context().Value(answerKey{}).(*answer)
	a.flush()
	a.passed = true
	a.err = a.c.Next()
	if w == http.ResponseWriter(a) {
		return
	}
	status := a.c.Response().StatusCode() // for the guard
	if a.err != nil {
		status = http.StatusInternalServerError
		if known, ok := errors.AsType[*fiber.Error](a.err); ok {
			status = known.Code
		}
	}
	if a.c.RequestCtx().Hijacked() {
		status = http.StatusSwitchingProtocols
	}
	out := a.c.Response()
	a.show(w, status)
	late, ok := w.(interface{ Unseen() })
	switch unseen := a.err != nil || out.IsBodyStream() || a.c.RequestCtx().Hijacked(); { // fiber's ErrorHandler writes errors
	case !unseen:
		_, _ = w.Write(out.Body()) // counts the bytes, and writes nothing
	case ok:
		late.Unseen()
	}
}

// show tells the guard the header of the response, and writes what it changes in that.
func (a *answer) show(w http.ResponseWriter, status int) {
	out, said := &a.c.Response().Header, http.Header{}
	for name, value := range out.All() {
		said.Add(string(name), string(value))
	}
	for name, values := range said {
		if slices.Equal(a.header[name], values) { // as guards have written it, who know their own fields
			said[name] = a.header[name]
		}
	}
	clear(a.header)
	maps.Copy(a.header, said)
	w.WriteHeader(status)
	for name, values := range a.header {
		if !slices.Equal(said[name], values) {
			out.Del(name)
			for _, value := range values {
				out.Add(name, value)
			}
		}
	}
}

// A lateBody is a request body that is read from fiber at the first Read.
type lateBody struct {
	c    fiber.Ctx
	rest *bytes.Reader
}

// Read implements [io.Reader].
func (b *lateBody) Read(p []byte) (int, error) {
	if b.rest == nil {
		b.rest = bytes.NewReader(b.c.Request().Body())
	}
	return b.rest.Read(p)
}

// Close implements [io.Closer].
func (b *lateBody) Close() error { return nil }

// request copies the parts of a request that guards read.
func request(c fiber.Ctx) (*http.Request, error) {
	in := c.Request()
	to, err := target(c)
	if err != nil {
		return nil, err
	}
	r := &http.Request{
		Method: string(in.Header.Method()), URL: to, RequestURI: string(c.RequestCtx().RequestURI()), Host: string(in.Host()),
		Proto: string(in.Header.Protocol()), ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: &lateBody{c: c}, ContentLength: int64(in.Header.ContentLength()), RemoteAddr: c.RequestCtx().RemoteAddr().String(),
		TLS: c.RequestCtx().TLSConnectionState(),
	}
	for name, value := range in.Header.All() {
		if key := http.CanonicalHeaderKey(string(name)); key != "Host" {
			r.Header[key] = append(r.Header[key], string(value))
		}
	}
	return r, nil
}

// errTarget is the error for a target that is no path, such as login. Fiber passes it to handlers
// of /*.
var errTarget = errors.New("fiberlimit: the target of the request does not begin with a slash")

// target returns the path by which fiber finds the handler, and the query.
func target(c fiber.Ctx) (*url.URL, error) {
	config := c.App().Config()
	path := strings.Clone(c.Path()) // without what follows #, and decoded under UnescapePath
	if !config.CaseSensitive {
		path = fiberstrings.ToLower(path)
	}
	if !config.StrictRouting && len(path) > 1 {
		path = strings.TrimRight(path, "/")
	}
	if !strings.HasPrefix(path, "/") {
		return nil, errTarget
	}
	to := &url.URL{Path: path, RawQuery: string(c.RequestCtx().URI().QueryString())}
	if !config.UnescapePath {
		var err error
		if to.Path, err = url.PathUnescape(path); err != nil {
			return nil, err
		}
		to.RawPath = path
	}
	return to, nil
}

// An answer is a response of net/http that becomes one of fiber: the guard's own, or the fields
// that it adds to the response of a handler.
type answer struct {
	c      fiber.Ctx
	header http.Header
	passed bool // the handlers of fiber have been called, and answer
	err    error
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if !a.passed {
		a.c.Status(status)
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	if a.passed {
		return len(b), nil
	}
	return a.c.Write(b)
}

// AfterResponse calls end when fiber has sent a streamed body, or the handler of a hijacked
// connection has returned. For other responses it returns false, since they are complete when the
// handler returns.
func (a *answer) AfterResponse(end func()) bool {
	c := a.c.RequestCtx()
	if !a.passed || !c.Response.IsBodyStream() && !c.Hijacked() || c.LastTimeoutErrorResponse() != nil {
		return false
	}
	last := &ender{end: end}
	c.SetUserValue(last, last)
	if c.Hijacked() {
		if conn := below(c.Conn()); conn != nil {
			last.watch(conn)
		} else if c.Request.Header.ConnectionClose() || c.Response.Header.ConnectionClose() {
			_ = last.Close()
		}
	}
	return true
}

// below returns the connection of the system below others that embed it, such as those of TLS, of
// netutil.LimitListener and of fasthttp's MaxConnsPerIP; nil if it is hidden.
func below(conn net.Conn) syscall.Conn {
	for range 8 {
		switch c := conn.(type) {
		case syscall.Conn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
			continue
		}
		of := reflect.Indirect(reflect.ValueOf(conn))
		if of.Kind() != reflect.Struct {
			return nil
		}
		inner := of.FieldByName("Conn")
		if !inner.IsValid() || !inner.CanInterface() {
			return nil
		}
		conn, _ = inner.Interface().(net.Conn)
	}
	return nil
}

// An ender is a value of a request context. fasthttp closes it when it is done with the request.
type ender struct {
	end   func()
	ended atomic.Bool
}

// Close implements [io.Closer].
func (e *ender) Close() error {
	if !e.ended.Swap(true) {
		e.end()
	}
	return nil
}

// watch closes e once the connection is closed. If a client asks to close it, or has left, fasthttp
// neither calls the handler of a hijacked connection nor closes the values of its request.
func (e *ender) watch(conn syscall.Conn) {
	time.AfterFunc(time.Second, func() {
		raw, err := conn.SyscallConn()
		if err == nil {
			err = raw.Control(func(uintptr) {})
		}
		switch {
		case e.ended.Load():
		case err != nil:
			_ = e.Close()
		default:
			e.watch(conn)
		}
	})
}

// flush writes the fields before the handlers add theirs.
func (a *answer) flush() {
	if a.passed {
		return
	}
	for name, values := range a.header {
		a.c.Response().Header.Del(name)
		for _, value := range values {
			a.c.Response().Header.Add(name, value)
		}
	}
}
