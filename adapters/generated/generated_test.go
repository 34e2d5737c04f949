// Package generated_test runs the snippets of docs/ROUTERS.md for what ogen and gqlgen
// generate, with the servers that they did generate. It is a module apart from
// go.work, so that what generates code is a dependency of nothing else.
package generated_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gqlhandler "github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/transport"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/adapters/generated/graph"
	"github.com/stint-dev/stint/adapters/generated/hello"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
)

// users is what both servers call.
type users struct{}

func (users) User(_ context.Context, p hello.UserParams) (hello.UserOK, error) {
	return hello.UserOK{Data: strings.NewReader("hello " + p.ID)}, nil
}

type resolvers struct{}

func (resolvers) Query() graph.QueryResolver { return resolvers{} }

func (resolvers) User(_ context.Context, id string) (string, error) { return "hello " + id, nil }

// An answer is what a test looks at.
type answer struct {
	status                   int
	body, retryAfter, fields string
}

// ask sends a request to the handler as a server; a body is GraphQL.
func ask(t *testing.T, server *httptest.Server, path, body string) answer {
	t.Helper()
	var r *http.Response
	var err error
	if body == "" {
		r, err = http.Get(server.URL + path)
	} else {
		r, err = http.Post(server.URL+path, "application/json", strings.NewReader(body))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{r.StatusCode, strings.TrimSpace(string(text)), r.Header.Get("Retry-After"), r.Header.Get("RateLimit")}
}

// limited asks three times of a limit of two an hour.
func limited(t *testing.T, h http.Handler, path, body, want string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	for i, fields := range []string{`"site";r=1;t=`, `"site";r=0;t=`} {
		got := ask(t, server, path, body)
		if got.status != 200 || got.body != want || got.retryAfter != "" || !strings.HasPrefix(got.fields, fields) {
			t.Errorf("request %d: %+v", i+1, got)
		}
	}
	got := ask(t, server, path, body)
	if got.status != 429 || got.retryAfter == "" || !strings.HasPrefix(got.fields, `"site";r=0;t=`) || !strings.Contains(got.body, `"violated-policies":["site"]`) {
		t.Errorf("request 3: %+v", got)
	}
}

func TestOgen(t *testing.T) {
	guard := httplimit.ByIP("site", "2 per hour")

	server, err := hello.NewServer(users{})
	if err != nil {
		t.Fatal(err)
	}
	handler := guard(server)

	limited(t, handler, "/users/7", "", "hello 7")
}

// TestOgenOperations counts each operation by itself.
func TestOgenOperations(t *testing.T) {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "site", stint.PerHour(2))
	if err != nil {
		t.Fatal(err)
	}
	server, err := hello.NewServer(users{})
	if err != nil {
		t.Fatal(err)
	}

	operation := func(r *http.Request) (string, bool) {
		route, _ := server.FindPath(r.Method, r.URL)
		return route.OperationID(), true // "" for what is not in the schema
	}
	guard, err := httplimit.New(limiter, httplimit.Join(httplimit.IPKey(httplimit.ClientIP{}), operation), httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}

	limited(t, guard(server), "/users/7", "", "hello 7")
}

func TestGqlgen(t *testing.T) {
	guard := httplimit.ByIP("site", "2 per hour")

	server := gqlhandler.New(graph.NewExecutableSchema(graph.Config{Resolvers: resolvers{}}))
	server.AddTransport(transport.POST{})
	m := http.NewServeMux()
	m.Handle("/query", guard(server))

	limited(t, m, "/query", `{"query":"{user(id: \"7\")}"}`, `{"data":{"user":"hello 7"}}`)
}
