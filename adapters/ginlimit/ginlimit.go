// Package ginlimit puts the guards of package httplimit in front of gin's handlers:
//
//	r := gin.New()
//	r.Use(ginlimit.Guard(httplimit.ByIP("site", "100/min")))
//
// A request that may not pass is answered as httplimit does, and the chain of its
// handlers is aborted. [httplimit.RouteKey] finds the route, such as
// "GET /users/:id"; requests that no route matches share one key.
//
// Price: what the guard costs, and two allocations. A guard may be used by many
// goroutines at once.
package ginlimit

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// NoRoute is the pattern of requests that no route matches.
const NoRoute = "no route"

// Guard returns a handler that lets pass what the guard does.
func Guard(guard func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Request.Pattern == "" {
			c.Request.Pattern = pattern(c)
		}
		passed := false
		writer := http.ResponseWriter(c.Writer)
		guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			c.Next()
			if w != writer { // it looks at the status, which gin has written past it
				w.WriteHeader(c.Writer.Status())
			}
		})).ServeHTTP(writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// pattern writes the route as http.ServeMux does.
func pattern(c *gin.Context) string {
	if path := c.FullPath(); path != "" {
		return c.Request.Method + " " + path
	}
	return NoRoute
}
