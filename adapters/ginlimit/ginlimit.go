// Package ginlimit puts the guards of package httplimit in front of gin's handlers:
//
//	r := gin.New()
//	r.Use(ginlimit.Guard(httplimit.ByIP("site", "100/min")))
//
// A denied request is answered as httplimit does, and the chain of its handlers is aborted.
// [httplimit.RouteKey] finds the route, such as "GET /users/:id"; requests that no route matches
// share one key.
//
// Price: that of the guard, and two allocations. A guard may be used by many goroutines at once.
package ginlimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// NoRoute is the pattern of requests that no route matches.
const NoRoute = "no route"

// Guard returns a handler that lets a request pass if the guard does.
func Guard(guard func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Request.Pattern == "" {
			c.Request.Pattern = pattern(c)
		}
		passed := false
		writer := http.ResponseWriter(c.Writer)
		guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			if w == writer {
				c.Next()
				return
			}
			own := c.Writer
			c.Writer = &shown{ResponseWriter: own, to: w} // the guard reads the response, or wants to know of a hijacked connection
			defer func() { c.Writer = own }()
			c.Next()
			w.WriteHeader(own.Status())
		})).ServeHTTP(writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// shown is gin's writer for a guard that reads what is written. It writes to the guard's writer,
// which writes to gin's.
type shown struct {
	gin.ResponseWriter
	to   http.ResponseWriter
	told bool // the guard knows the status, which gin keeps until something is written
}

func (s *shown) tell() {
	if !s.told {
		s.told = true
		s.to.WriteHeader(s.Status())
	}
}

// Write implements [io.Writer].
func (s *shown) Write(b []byte) (int, error) {
	s.tell()
	return s.to.Write(b)
}

// WriteString implements [io.StringWriter].
func (s *shown) WriteString(text string) (int, error) {
	s.tell()
	return io.WriteString(s.to, text)
}

// Flush implements [http.Flusher].
func (s *shown) Flush() {
	s.tell()
	_ = http.NewResponseController(s.to).Flush() // as gin's does
}

// Hijack implements [http.Hijacker].
func (s *shown) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(s.to).Hijack() // the guard's writer passes it to gin's
}

// Unwrap is for [http.ResponseController].
func (s *shown) Unwrap() http.ResponseWriter { return s.to }

// pattern writes the route as http.ServeMux does.
func pattern(c *gin.Context) string {
	if path := c.FullPath(); path != "" {
		return c.Request.Method + " " + path
	}
	return NoRoute
}
