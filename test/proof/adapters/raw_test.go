package adapters_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	fiberlog "github.com/gofiber/fiber/v3/log"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v5"

	"github.com/stint-dev/stint/adapters/echolimit"
	"github.com/stint-dev/stint/adapters/fiberlimit"
	"github.com/stint-dev/stint/adapters/ginlimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// rawRules have a rule for each handler of the servers below, of the handler's name,
// and a rule for each part of a request that handlers read. They admit all.
const rawRules = `{"rules": [
	{"name": "host", "key": ["host"], "limits": "1000000/s"},
	{"name": "header", "key": ["header.x-api-key"], "limits": "1000000/s"},
	{"name": "cookie", "key": ["cookie.session"], "limits": "1000000/s"},
	{"name": "query", "key": ["query.action"], "limits": "1000000/s"},
	{"name": "health", "match": {"path": "/health"}, "unlimited": true},
	{"name": "login", "match": {"path": "/login"}, "key": [], "limits": "1000000/s", "final": true},
	{"name": "files", "match": {"path": "/files/**"}, "key": [], "limits": "1000000/s", "final": true},
	{"name": "item", "match": {"path": "/items/{id}"}, "key": [], "limits": "1000000/s", "final": true},
	{"name": "user", "match": {"path": "/users/{id}/posts"}, "key": [], "limits": "1000000/s", "final": true},
	{"name": "rest", "match": {"path": "/**"}, "key": [], "limits": "1000000/s"}
]}`

// parts are the attributes of the rules that handlers read, by the rules' names.
var parts = []string{"host", "header", "cookie", "query"}

// A sighting is what one request was decided by, and what its handler saw.
type sighting struct {
	rules   []string          // that it was decided by
	keys    map[string]string // of these
	handler string            // "" if none was reached
	saw     map[string]string // of parts
}

// A watch is what a server reports of the one request that it has at a time.
type watch struct{ last sighting }

// reached notes what a handler sees.
func (w *watch) reached(handler, host, header, cookie, query string) {
	w.last.handler = handler
	w.last.saw = map[string]string{"host": host, "header": header, "cookie": cookie, "query": query}
}

// guard goes by rawRules, and reports.
func (w *watch) guard(t *testing.T) func(http.Handler) http.Handler {
	t.Helper()
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, rawRules), policy.Options{})
	guard, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{OnDecision: func(_ *http.Request, o httplimit.Outcome) {
		w.last.keys = make(map[string]string)
		for i, r := range o.Rules.ByRule {
			w.last.rules = append(w.last.rules, r.Rule)
			w.last.keys[r.Rule] = o.Rules.Key(i)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// fault says how a request got around the rules, "" if it did not.
func (s *sighting) fault() string {
	if s.handler == "" {
		return ""
	}
	if !slices.Contains(s.rules, s.handler) {
		return fmt.Sprintf("reached the handler of %s, decided by the rules %q", s.handler, s.rules)
	}
	for _, part := range parts {
		want := s.saw[part]
		if part == "host" {
			want, _ = policy.CleanHost(want)
		}
		if s.keys[part] != want {
			return fmt.Sprintf("its handler saw the %s %q, counted as %q", part, s.saw[part], s.keys[part])
		}
	}
	return ""
}

// rawTargets are ways to write targets that some server or router reads as another.
var rawTargets = []string{
	"/", "/login", "/files/a", "/users/7/posts", "/health", "/other",
	"/items/7", "/items/", "/items", "/items//", "/items/%2f", "/items/7/", "/items/../health", "/items/%20",
	// Case.
	"/LOGIN", "/Login", "/FILES/A", "/HEALTH", "/Users/7/Posts",
	// Slashes at the end, empty segments.
	"/login/", "/login//", "//login", "//", "///login", "/files", "/files/", "/files//", "/files//login", "/users//posts", "/users/7//posts", "/health/", "//health",
	// Absolute and opaque forms, no slash, no path.
	"http://a.example/login", "http://b.example/files/../login", "HTTP://b.example/login", "//b.example/login", "http://b.example", "http://b.example?x", "http://b.example#/login",
	"a:/login", "http:/login", "http:login", "login", "files/a", "health", "*", "?x", "?/login", "#x", "%2flogin", "../login", ".", "http://x@b.example/login", "http://b.example//login",
	// Dot segments, plain and encoded, once and twice.
	"/files/../login", "/files/../health", "/files/..", "/files/.", "/./login", "/../login", "/login/.", "/login/../x", "/users/./posts", "/users/../posts", "/x/../files/a",
	"/files/%2e%2e/login", "/files/%2E./login", "/files/.%2e/health", "/%2e/login", "/files/%252e%252e/login", "/files/..%2flogin", "/files/..;/login", "/files/...", "/files/a|b/%2e%2e/login",
	// Slashes and other characters that are encoded, or need not be.
	"/files%2fa", "/files%2Fa", "/files/a%2fb", "/login%2f", "/x%2flogin", "/%2flogin", "/x%2f..%2flogin", "/x%252flogin", "/users/7%2fposts", "/users/a|b%2Fposts", "/users/%2f/posts",
	"/%6cogin", "/%6Cogin", "/%4cogin", "/%4Cogin", "/logi%6e", "/%68ealth", "/x|%68ealth", "/%66iles/a", "/users%2F7/posts", "/healt%68|", "/users/caf%c3%a9/posts", "/users/caf%C3%A9/posts", "/users/caf\xc3\xa9/posts", "/users/\xff/posts", "/users/%ff/posts",
	"/users/a+b/posts", "/users/a%2Bb/posts", "/users/a%20b/posts", "/login%20", "/login%", "/login%zz", "/login%u002f", "/login%c0%af",
	// Backslashes, semicolons, fragments, queries.
	`/files\a`, `\login`, `/x\..\login`, "/files/%5c..%5clogin", "/login;x=1", "/login%3bx", "/;/login", "/login#x", "/login#/../health", "/login%23x", "/health#x", "/login?x#y", "/login#x?y", "/login?#", "/login??x", "/login?/../health", "/login%3fx", "/login&x",
	// Control characters, dots and blanks at the end.
	"/login\x00", "/login%00", "/health%00", "/login\t", "/login%09", "/login%0a", "/login%0d%0aX:%20y", "/login\x7f", "/login%7f", "/login\x0b", "/login.", "/login/.x", "/login ", "/login x", "/login\r", " /login",
}

// rawHeads are what else a request may say twice, or in two ways, behind GET /other;
// %s is the query.
var rawHeads = []struct{ query, head string }{
	{"", "Host: A.Example.:80\r\n"},
	{"", "Host: a.example\r\nHost: b.example\r\n"},
	{"", "Host: a.example, b.example\r\n"},
	{"", "Host: x@b.example\r\n"},
	{"", "Host: a.example:80:81\r\n"},
	{"", "Host: a.example/b\r\n"},
	{"", "Host: [::1]:80\r\n"},
	{"", "Host:\r\n"},
	{"", ""},
	{"", "Host: a.example\r\nX-Forwarded-Host: b.example\r\n"},
	{"", "Host: a.example\r\nX-Forwarded-Host: A.example:80\r\n"},
	{"", "Host: a.example\r\nX_Forwarded_Host: b.example\r\n"},
	{"", "Host: a.example\r\nX-Forwarded-Host: a.example, b.example\r\n"},
	{"", "Host : b.example\r\nHost: a.example\r\n"},
	{"", "Host: a.example\r\nX-Api-Key: a\r\n"},
	{"", "Host: a.example\r\nx-api-KEY:\t a \t\r\n"},
	{"", "Host: a.example\r\nX-Api-Key: a\r\nX-Api-Key: b\r\n"},
	{"", "Host: a.example\r\nX-Api-Key: a, b\r\n"},
	{"", "Host: a.example\r\nX_Api_Key: b\r\n"},
	{"", "Host: a.example\r\nX-Api-Key : b\r\nX-Api-Key: a\r\n"},
	{"", "Host: a.example\r\n X-Api-Key: b\r\n"},
	{"", "Host: a.example\r\nX-Other: a\r\n X-Api-Key: b\r\n"},
	{"", "Host: a.example\r\nX-Api-Key: a\r\n b\r\n"},
	{"", "Host: a.example\r\nX-Api-Key: a\x00b\r\n"},
	{"", "Host: a.example\r\nX-Api-Key: a\nX-Api-Key: b\r\n"},
	{"", "Host: a.example\r\nX-Api-Key:\r\n"},
	{"", "Host: a.example\r\nX-Api-Key: caf\xe9\r\n"},
	{"", "Host: a.example\r\nConnection: X-Api-Key\r\nX-Api-Key: a\r\n"},
	{"", "Host: a.example\r\nCookie: session=a\r\n"},
	{"", "Host: a.example\r\nCookie: x=1; session=a; y=2\r\n"},
	{"", "Host: a.example\r\nCookie: session=a; session=b\r\n"},
	{"", "Host: a.example\r\nCookie: session=a\r\nCookie: session=b\r\n"},
	{"", "Host: a.example\r\nCookie: x=1\r\nCookie: session=b\r\n"},
	{"", "Host: a.example\r\nCookie: session=\"a\"\r\n"},
	{"", "Host: a.example\r\nCookie: session=a b\r\n"},
	{"", "Host: a.example\r\nCookie: session=%61\r\n"},
	{"", "Host: a.example\r\nCookie: Session=a\r\n"},
	{"", "Host: a.example\r\nCookie: session =a\r\n"},
	{"", "Host: a.example\r\nCookie: session\r\n"},
	{"", "Host: a.example\r\nCookie: session=\r\n"},
	{"", "Host: a.example\r\nCookie: x=1,session=a\r\n"},
	{"", "Host: a.example\r\nCookie: x=\"; session=a; y=\"\r\n"},
	{"", "Host: a.example\r\nCookie: ;;session=a\r\n"},
	{"?action=a", "Host: a.example\r\n"},
	{"?action=a&action=b", "Host: a.example\r\n"},
	{"?action=a;action=b", "Host: a.example\r\n"},
	{"?x=1;action=b", "Host: a.example\r\n"},
	{"?%61ction=a", "Host: a.example\r\n"},
	{"?action=%61+%2b", "Host: a.example\r\n"},
	{"?action=%zz", "Host: a.example\r\n"},
	{"?action=%ff", "Host: a.example\r\n"},
	{"?action=a%00b", "Host: a.example\r\n"},
	{"?action[]=a", "Host: a.example\r\n"},
	{"?action", "Host: a.example\r\n"},
	{"?action=", "Host: a.example\r\n"},
	{"?action=a#&action=b", "Host: a.example\r\n"},
	{"?Action=a", "Host: a.example\r\n"},
	{"?+action=a", "Host: a.example\r\n"},
	{"?action=a=b", "Host: a.example\r\n"},
	{"?&&action=a", "Host: a.example\r\n"},
	{"?action=a?action=b", "Host: a.example\r\n"},
	{"?x=1?action=b", "Host: a.example\r\n"},
}

// rawRequests are all of these as they stand on the wire.
func rawRequests() (all []string) {
	const end = "Connection: close\r\n\r\n"
	for _, target := range rawTargets {
		for _, method := range []string{"GET", "OPTIONS"} {
			all = append(all, method+" "+target+" HTTP/1.1\r\nHost: a.example\r\n"+end)
		}
	}
	for _, one := range rawHeads {
		all = append(all, "GET /other"+one.query+" HTTP/1.1\r\n"+one.head+end)
	}
	for _, line := range []string{"GET /login HTTP/1.0", "GET  /login HTTP/1.1", "GET /login  HTTP/1.1", "GET\t/login\tHTTP/1.1", "get /other HTTP/1.1", "GET /login", "GET /login HTTP/1.1 HTTP/1.1", "CONNECT /files/../login HTTP/1.1", "CONNECT login:80 HTTP/1.1", "HEAD /login HTTP/1.1", "POST /LOGIN HTTP/1.1"} {
		all = append(all, line+"\r\nHost: a.example\r\n"+end)
	}
	return all
}

// ask sends a request on a connection of its own, and returns the status line.
func ask(address, raw string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, raw); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", nil // a reset: the server has not read on
	}
	_, _ = io.Copy(io.Discard, r)
	return strings.TrimSpace(line), nil
}

// TestRawRequests sends each request to servers of each framework, in several
// configurations of its router. Whatever the request, one that reaches a handler was
// decided by the rule of this handler, and counted by what the handler sees of it.
func TestRawRequests(t *testing.T) {
	for _, e := range rawServers() {
		t.Run(e.name, func(t *testing.T) {
			w := new(watch)
			address := e.serve(t, w)
			reached := make(map[string]int)
			for _, raw := range rawRequests() {
				w.last = sighting{}
				status, err := ask(address, raw)
				if err != nil {
					t.Fatal(err)
				}
				if fault := w.last.fault(); fault != "" {
					t.Errorf("%q (%s): %s", raw, status, fault)
				}
				reached[w.last.handler]++
			}
			for _, handler := range []string{"", "health", "login", "files", "item", "user", "rest"} {
				if reached[handler] == 0 {
					t.Errorf("no request reached the handler %q: %v", handler, reached)
				}
			}
		})
	}
}

// rawRoutes are the handlers of each server, by path: with and without a slash at the
// end, which is one path to rules and two to some routers. A * is the rest of a path.
var rawRoutes = map[string]string{
	"/health": "health", "/health/": "health", "/login": "login", "/login/": "login", "/files": "files", "/files/*": "files",
	"/items/:id": "item", "/items/:id/": "item", "/users/:id/posts": "user", "/users/:id/posts/": "user",
}

// A rawServer is a framework in one configuration.
type rawServer struct {
	name  string
	serve func(*testing.T, *watch) (address string)
}

func rawServers() (all []rawServer) {
	for name, configure := range map[string]func(*gin.Engine){
		"gin":                        func(*gin.Engine) {},
		"gin, raw path":              func(e *gin.Engine) { e.UseRawPath = true },
		"gin, raw path, not decoded": func(e *gin.Engine) { e.UseRawPath, e.UnescapePathValues = true, false },
		"gin, escaped path":          func(e *gin.Engine) { e.UseEscapedPath = true },
		"gin, no extra slashes":      func(e *gin.Engine) { e.RemoveExtraSlash, e.RedirectFixedPath = true, true },
		"gin, no redirects":          func(e *gin.Engine) { e.RedirectTrailingSlash = false },
	} {
		all = append(all, rawServer{name, func(t *testing.T, w *watch) string { return rawGin(t, w, configure) }})
	}
	for name, use := range map[string]func(*echo.Echo, echo.MiddlewareFunc){
		"echo":                    func(e *echo.Echo, guard echo.MiddlewareFunc) { e.Use(guard) },
		"echo, before the router": func(e *echo.Echo, guard echo.MiddlewareFunc) { e.Pre(guard) },
	} {
		all = append(all, rawServer{name, func(t *testing.T, w *watch) string { return rawEcho(t, w, use) }})
	}
	for name, config := range map[string]fiber.Config{
		"fiber":                 {},
		"fiber, case sensitive": {CaseSensitive: true},
		"fiber, strict":         {StrictRouting: true},
		"fiber, unescaped":      {UnescapePath: true},
		"fiber, behind a proxy": {TrustProxy: true, TrustProxyConfig: fiber.TrustProxyConfig{Loopback: true}},
		"fiber, all of these":   {CaseSensitive: true, StrictRouting: true, UnescapePath: true},
	} {
		all = append(all, rawServer{name, func(t *testing.T, w *watch) string { return rawFiber(t, w, config) }})
	}
	all = append(all, rawServer{"chi", rawChi}, rawServer{"net/http", rawMux})
	for name, router := range map[string]*mux.Router{
		"gorilla": mux.NewRouter(), "gorilla, as sent": mux.NewRouter().SkipClean(true), "gorilla, encoded": mux.NewRouter().UseEncodedPath().SkipClean(true),
	} {
		all = append(all, rawServer{name, func(t *testing.T, w *watch) string { return rawGorilla(t, w, router) }})
	}
	slices.SortFunc(all, func(a, b rawServer) int { return strings.Compare(a.name, b.name) })
	return all
}

// rawHandler reads the parts of a request as handlers of net/http do.
func rawHandler(w *watch, name string) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		cookie := ""
		if one, err := r.Cookie("session"); err == nil {
			cookie = one.Value
		}
		w.reached(name, r.Host, r.Header.Get("X-Api-Key"), cookie, r.URL.Query().Get("action"))
	}
}

func rawServe(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// braced writes a path of rawRoutes with the rest of it as given, and :id in braces.
func braced(path, rest string) string {
	return strings.NewReplacer(":id", "{id}", "*", rest).Replace(path)
}

func rawChi(t *testing.T, w *watch) string {
	r := chi.NewRouter()
	r.Use(w.guard(t))
	for path, name := range rawRoutes {
		r.Handle(braced(path, "*"), rawHandler(w, name))
	}
	r.Handle("/*", rawHandler(w, "rest"))
	return rawServe(t, r)
}

func rawGorilla(t *testing.T, w *watch, r *mux.Router) string {
	r.Use(w.guard(t))
	for path, name := range rawRoutes {
		r.Handle(braced(path, "{rest:.*}"), rawHandler(w, name))
	}
	r.PathPrefix("/").Handler(rawHandler(w, "rest"))
	return rawServe(t, r)
}

// rawMux has the guard directly in front of http.ServeMux.
func rawMux(t *testing.T, w *watch) string {
	m := http.NewServeMux()
	for path, name := range rawRoutes {
		if path = braced(path, "{rest...}"); strings.HasSuffix(path, "/") {
			path += "{$}"
		}
		m.Handle(path, rawHandler(w, name))
	}
	m.Handle("/", rawHandler(w, "rest"))
	return rawServe(t, w.guard(t)(m))
}

func rawGin(t *testing.T, w *watch, configure func(*gin.Engine)) string {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	configure(e)
	e.Use(ginlimit.Guard(w.guard(t)))
	handle := func(name string) gin.HandlerFunc {
		return func(c *gin.Context) {
			cookie := ""
			if one, err := c.Request.Cookie("session"); err == nil {
				cookie = one.Value
			}
			w.reached(name, c.Request.Host, c.GetHeader("X-Api-Key"), cookie, c.Query("action"))
		}
	}
	for path, name := range rawRoutes {
		e.Any(strings.Replace(path, "*", "*path", 1), handle(name))
	}
	e.NoRoute(handle("rest"))
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func rawEcho(t *testing.T, w *watch, use func(*echo.Echo, echo.MiddlewareFunc)) string {
	e := echo.New()
	use(e, echolimit.Guard(w.guard(t)))
	handle := func(name string) echo.HandlerFunc {
		return func(c *echo.Context) error {
			cookie := ""
			if one, err := c.Cookie("session"); err == nil {
				cookie = one.Value
			}
			w.reached(name, c.Request().Host, c.Request().Header.Get("X-Api-Key"), cookie, c.QueryParam("action"))
			return c.NoContent(http.StatusOK)
		}
	}
	for path, name := range rawRoutes {
		e.Any(path, handle(name))
	}
	e.Any("/*", handle("rest"))
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func rawFiber(t *testing.T, w *watch, config fiber.Config) string {
	fiberlog.SetOutput(io.Discard) // a line for each request that is none of HTTP
	app := fiber.New(config)
	app.Use("/*", fiberlimit.Guard(w.guard(t)))
	handle := func(name string) fiber.Handler {
		return func(c fiber.Ctx) error {
			w.reached(name, strings.Clone(c.Host()), strings.Clone(c.Get("X-Api-Key")), strings.Clone(c.Cookies("session")), strings.Clone(c.Query("action")))
			return c.SendStatus(http.StatusOK)
		}
	}
	for path, name := range rawRoutes {
		app.All(path, handle(name))
	}
	app.All("/*", handle("rest"))
	ln := listen(t)
	serve(t, func() error { return app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }, func() {
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}
