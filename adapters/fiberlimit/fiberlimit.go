// Package fiberlimit puts the guards of package httplimit in front of the handlers
// of fiber v3:
//
//	app := fiber.New()
//	app.Use(fiberlimit.Guard(httplimit.ByIP("site", "100/min")))
//
// A request that may not pass is answered as httplimit does, and no further handler
// is called. The guard sees the request as net/http has it: every line of a
// repeated header, in order, the body left alone. What it sees is a copy, since
// fiber uses the memory of a request again. A guard that looks at the status of
// the answer (Options.Refund) sees that of the error that a handler returns, too.
//
// [httplimit.RouteKey] finds no route under fiber, which does not know it yet where
// middleware runs: use a guard for each route there, as an argument of app.Get.
//
// Price: what the guard costs, and a dozen allocations for the copy. A guard may be
// used by many goroutines at once.
package fiberlimit

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v3"
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
	w.WriteHeader(status)
}

// request copies what guards look at.
func request(c fiber.Ctx) (*http.Request, error) {
	in := c.Request()
	uri := string(c.RequestCtx().RequestURI())
	to, err := url.ParseRequestURI(uri)
	if err != nil {
		return nil, err
	}
	r := &http.Request{
		Method: string(in.Header.Method()), URL: to, RequestURI: uri, Host: string(in.Host()),
		Proto: string(in.Header.Protocol()), ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, RemoteAddr: c.RequestCtx().RemoteAddr().String(),
		TLS: c.RequestCtx().TLSConnectionState(),
	}
	for name, value := range in.Header.All() {
		if key := http.CanonicalHeaderKey(string(name)); key != "Host" {
			r.Header[key] = append(r.Header[key], string(value))
		}
	}
	return r, nil
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
