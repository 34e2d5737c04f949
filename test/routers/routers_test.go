// Package routers_test has the snippets of docs/HTTP.md, run with the routers
// themselves. Nothing imports it.
package routers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/memstore"
)

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// byRoute is a guard that gives each client its own count for each route.
func byRoute() func(http.Handler) http.Handler {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "routes", stint.PerHour(1))
	if err != nil {
		panic(err)
	}
	guard, err := httplimit.New(limiter, httplimit.Join(httplimit.IPKey(httplimit.ClientIP{}), httplimit.RouteKey()), httplimit.Options{})
	if err != nil {
		panic(err)
	}
	return guard
}

// get prints the status of each path.
func get(h http.Handler, paths ...string) {
	said := make([]string, len(paths))
	for i, path := range paths {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		said[i] = fmt.Sprint(path, " ", w.Code)
	}
	fmt.Println(strings.Join(said, ", "))
}

func Example_netHTTP() {
	guard := httplimit.ByIP("site", "2 per hour")
	perRoute := byRoute()

	m := http.NewServeMux()
	m.Handle("GET /hello", http.HandlerFunc(hello))
	m.Handle("GET /users/{id}", perRoute(http.HandlerFunc(hello))) // where the route is known
	handler := guard(m)

	get(handler, "/hello", "/hello", "/hello")
	get(m, "/users/1", "/users/2")
	// Output:
	// /hello 200, /hello 200, /hello 429
	// /users/1 200, /users/2 429
}

func Example_chi() {
	guard := httplimit.ByIP("site", "2 per hour")
	perRoute := byRoute()

	r := chi.NewRouter()
	r.Group(func(r chi.Router) {
		r.Use(guard)
		r.Get("/hello", hello)
	})
	r.With(perRoute).Get("/users/{id}", hello) // where the route is known

	get(r, "/hello", "/hello", "/hello")
	get(r, "/users/1", "/users/2")
	// Output:
	// /hello 200, /hello 200, /hello 429
	// /users/1 200, /users/2 429
}

func Example_gorilla() {
	guard := httplimit.ByIP("site", "2 per hour")

	r := mux.NewRouter()
	r.Use(guard)
	r.HandleFunc("/hello", hello)

	get(r, "/hello", "/hello", "/hello")
	// Output:
	// /hello 200, /hello 200, /hello 429
}

func Example_huma() {
	guard := byRoute()

	m := http.NewServeMux()
	api := humago.New(m, huma.DefaultConfig("hello", "1.0.0"))
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { next(ctx) })).ServeHTTP(w, r)
	})
	huma.Get(api, "/users/{id}", func(context.Context, *struct {
		ID string `path:"id"`
	}) (*struct{ Body string }, error) {
		return &struct{ Body string }{"hello"}, nil
	})

	get(m, "/users/1", "/users/2", "/openapi.json")
	// Output:
	// /users/1 200, /users/2 429, /openapi.json 200
}

// TestSnippets looks for each line of the page's snippets in the examples, in order.
func TestSnippets(t *testing.T) {
	_, section, _ := strings.Cut(pages.Read(t, "docs/HTTP.md"), "\n## Routers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := pages.Blocks(section, "go")
	if len(blocks) < 3 {
		t.Errorf("%d snippets", len(blocks))
	}
	for _, block := range blocks {
		rest := pages.Read(t, "test/routers/routers_test.go")
		for line := range strings.Lines(block) {
			_, after, ok := strings.Cut(rest, strings.TrimSpace(line))
			if strings.TrimSpace(line) == "…" {
				continue
			} else if !ok {
				t.Errorf("not in the example: %s", line)
			} else {
				rest = after
			}
		}
	}
}
