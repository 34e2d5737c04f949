package fiberlimit_test

import (
	"fmt"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"

	"github.com/stint-dev/stint/adapters/fiberlimit"
	"github.com/stint-dev/stint/httplimit"
)

func Example() {
	app := fiber.New()
	app.Use("/*", fiberlimit.Guard(httplimit.ByIP("site", "2 per hour")))
	app.Get("/hello", func(c fiber.Ctx) error { return c.SendString("hello") })
	for range 3 { // app.Listen(":8080")
		w, err := app.Test(httptest.NewRequest("GET", "/hello", nil))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s, retry after %q\n", w.StatusCode, w.Header.Get("RateLimit"), w.Header.Get("Retry-After"))
	}
	// Output:
	// 200 "site";r=1;t=1800, retry after ""
	// 200 "site";r=0;t=3600, retry after ""
	// 429 "site";r=0;t=1800, retry after "1800"
}
