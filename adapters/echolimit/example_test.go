package echolimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/stint-dev/stint/adapters/echolimit"
	"github.com/stint-dev/stint/httplimit"
)

func Example() {
	r := echo.New()
	r.Use(echolimit.Guard(httplimit.ByIP("site", "2 per hour")))
	r.GET("/hello", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	for range 3 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hello", nil))
		fmt.Printf("%d %s, retry after %q\n", w.Code, w.Header().Get("RateLimit"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 "site";r=1;t=1800, retry after ""
	// 200 "site";r=0;t=3600, retry after ""
	// 429 "site";r=0;t=1800, retry after "1800"
}
