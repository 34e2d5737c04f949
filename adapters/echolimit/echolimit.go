// Package echolimit puts the guards of package httplimit in front of the handlers of echo v5:
//
//	e := echo.New()
//	e.Use(echolimit.Guard(httplimit.ByIP("site", "100/min")))
//
// A denied request is answered as httplimit does, and its handler is not called.
// [httplimit.RouteKey] finds the route, such as "GET /users/:id"; requests that no route matches
// share one key. If the guard reads the status or has limits in flight, an error of a handler
// counts by the status with which echo answers it, and the answer is written where the guard
// stands.
//
// Price: that of the guard, and three allocations. A guard may be used by many goroutines at once.
package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

// NoRoute is the pattern of requests that no route matches.
const NoRoute = "no route"

// Guard returns middleware that lets a request pass if the guard does.
func Guard(guard func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			if c.Request().Pattern == "" {
				c.Request().Pattern = pattern(c)
			}
			writer := c.Response()
			guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				if w == writer {
					err = next(c)
					return
				}
				// The guard reads the status, or wants to know of a hijacked connection, so an
				// error must become a status here.
				c.SetResponse(echo.NewResponse(w, c.Echo().Logger))
				if err := next(c); err != nil {
					c.Echo().HTTPErrorHandler(c, err)
				}
			})).ServeHTTP(writer, c.Request())
			return err
		}
	}
}

// pattern writes the route as http.ServeMux does.
func pattern(c *echo.Context) string {
	if path := c.Path(); path != "" {
		return c.Request().Method + " " + path
	}
	return NoRoute
}
