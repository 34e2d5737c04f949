// Package fiberlimit puts the guards of package httplimit in front of the handlers
// of fiber v3:
//
//	app := fiber.New()
//	app.Use("/*", fiberlimit.Guard(httplimit.ByIP("site", "100/min")))
//
// The pattern /* is part of it: without one, fiber calls no middleware for a target
// that does not begin with a slash, but does call the handler of /*.
//
// A request that may not pass is answered as httplimit does, and no further handler
// is called. The guard sees the request as net/http has it: every line of a
// repeated header, in order, the body left alone unless rules look into it. The path is the one by which fiber
// looks for the handler: in lower case and without a slash at the end, unless
// fiber.Config says CaseSensitive or StrictRouting, decoded under UnescapePath, and
// without what follows #. So write the paths of rules in lower case, or set
// ignore_path_case in the rules file. What the guard sees is a copy, since fiber uses
// the memory of a request again. A guard that looks at the status of the answer
// (Options.Refund) sees that of the error that a handler returns, too. Rules that go by
// the response see the body once the handler has returned, and of a body that is a stream
// none. Under a limit in flight, such a body, or a connection that the handler takes over,
// keeps its place until it ends.
//
// [httplimit.RouteKey] finds no route under fiber, which does not know it yet where
// middleware runs: use a guard for each route there, as an argument of app.Get.
//
// Price: what the guard costs, and a dozen allocations for the copy. A guard may be
// used by many goroutines at once.
package fiberlimit

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
	fiberstrings "github.com/gofiber/utils/v2/strings"
)

// Guard returns a handler that lets pass what the guard does.
func Guard(guard func(http.Handler) http.Handler) fiber.Handler {
	guarded := guard(http.HandlerFunc(pass))
	return func(c fiber.Ctx) error {
		r, err := request(c)
		if err != nil {
			return fiber.ErrBadRequest
		}
		a := &answer{c: c, header: http.Header{}}
		guarded.ServeHTTP(a, r.WithContext(context.WithValue(c.Context(), answerKey{}, a)))
		a.flush()
		return a.err
	}
}

// answerKey is where the answer is in the context of a request, for pass.
type answerKey struct{}

// pass is what stands behind the guard: the next handler of fiber.
func pass(w http.ResponseWriter, r *http.Request) {
	a := r.Context().Value(answerKey{}).(*answer)
	a.flush()
	a.passed = true
	a.err = a.c.Next()
	if w == http.ResponseWriter(a) {
		return
	}
	status := a.c.Response().StatusCode() // which the guard looks at
	if a.err != nil {
		status = http.StatusInternalServerError
		if known, ok := errors.AsType[*fiber.Error](a.err); ok {
			status = known.Code
		}
	}
	out := a.c.Response()
	for name, value := range out.Header.All() {
		a.header.Add(string(name), string(value))
	}
	w.WriteHeader(status)
	if a.err == nil && !out.IsBodyStream() {
		_, _ = w.Write(out.Body()) // it counts, and goes nowhere
	}
}

// A lateBody is the body of a request, which fiber reads when it is asked for.
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

// request copies what guards look at.
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

// errTarget is for a target that is no path, such as login. Fiber hands it to handlers
// of /*.
var errTarget = errors.New("fiberlimit: the target of the request does not begin with a slash")

// target returns the path by which fiber looks for the handler, and the query.
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

// An answer is a response of net/http that becomes one of fiber's: the guard's own,
// or the fields that it adds to that of a handler.
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

// AfterResponse calls end when fiber has sent a body that is a stream, or the handler of a
// connection that was taken over has returned. For any other response it reports false: that
// is whole when its handler returns.
func (a *answer) AfterResponse(end func()) bool {
	c := a.c.RequestCtx()
	if !a.passed || !c.Response.IsBodyStream() && !c.Hijacked() || c.LastTimeoutErrorResponse() != nil {
		return false
	}
	last := &ender{end}
	c.SetUserValue(last, last)
	return true
}

// An ender is a value of a request, which fasthttp closes when it is done with the request.
type ender struct{ end func() }

// Close implements [io.Closer].
func (e *ender) Close() error {
	e.end()
	return nil
}

// flush hands the fields over, before the handlers add theirs.
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
