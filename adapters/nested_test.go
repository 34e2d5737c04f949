package adapters_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/adapters/fiberlimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// TestFiberNested has two guards answer in one header, though each sees a copy of the request.
func TestFiberNested(t *testing.T) {
	guard := func(name string, limit stint.Limit) fiber.Handler {
		l := made.Limiter(t, memstore.New(memstore.Options{}), name, limit)
		g, err := httplimit.New(l, httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return fiberlimit.Guard(g)
	}
	app := fiber.New()
	tight := guard("tight", stint.PerHour(4))
	app.Use("/*", guard("loose", stint.PerHour(100)), tight, tight)
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	for i, want := range []string{`"tight";r=2;t=1800`, `"tight";r=0;t=3600`} {
		r, err := http.NewRequest(http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := app.Test(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.Header.Get("RateLimit"); got != want || answer.StatusCode != 200 {
			t.Errorf("request %d: %d %s, want %s", i, answer.StatusCode, got, want)
		}
		if got, want := answer.Header.Get("RateLimit-Policy"), `"loose";q=100;w=3600, "tight";q=4;w=3600`; got != want {
			t.Errorf("policies %s", got)
		}
		answer.Body.Close()
	}
}
