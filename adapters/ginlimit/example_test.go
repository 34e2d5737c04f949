package ginlimit_test

import (
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-dev/stint/adapters/ginlimit"
	"github.com/stint-dev/stint/httplimit"
)

func Example() {
	r := engine() // gin.Default()
	r.Use(ginlimit.Guard(httplimit.ByIP("site", "2 per hour")))
	r.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	for range 3 {
		w := get(r, "/hello")
		fmt.Printf("%d %s, retry after %q\n", w.Code, w.Header().Get("RateLimit"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 "site";r=1;t=1800, retry after ""
	// 200 "site";r=0;t=3600, retry after ""
	// 429 "site";r=0;t=1800, retry after "1800"
}
