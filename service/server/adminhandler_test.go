package server_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/service/server"
)

// noPaths is an API that has no path.
type noPaths struct{ http.Handler }

func (noPaths) Has(string) bool { return false }

// TestAdminHandler asks the handler for operators at a loopback address, on a Unix
// socket and at one that others reach, with tokens and without.
func TestAdminHandler(t *testing.T) {
	const asker, operator = "asker-0123456789", "operator-0123456789"
	echo := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(name + r.URL.Path)) })
	}
	with := server.AdminHandlerOptions{Admin: newOptions(t, someRules).Admin, Lab: echo("lab"), Simulate: echo("simulate")}
	tokens := with
	tokens.Clients, tokens.Operators = writeTokens(t, asker), writeTokens(t, operator)
	api := with
	api.Rules = noPaths{http.NotFoundHandler()}
	bare := server.AdminHandlerOptions{Admin: with.Admin}
	local, socket := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090}, &net.UnixAddr{Name: "/run/stint.sock", Net: "unix"}
	others := &net.TCPAddr{IP: net.IPv4zero, Port: 9090}
	header := func(name, value string) [2]string { return [2]string{name, value} }
	none := header("Accept", "*/*")
	basic := func(password string) [2]string {
		r := &http.Request{Header: make(http.Header)}
		r.SetBasicAuth("anna", password)
		return header("Authorization", r.Header.Get("Authorization"))
	}
	for _, c := range []struct {
		name         string
		addr         net.Addr
		o            server.AdminHandlerOptions
		method, path string
		header       [2]string
		status       int
		answer       string
	}{
		{"the index", local, with, "GET", "/", none, 200, `<a href="lab/">/lab/</a>`},
		{"the index by POST", local, with, "POST", "/", none, 405, "use GET, HEAD"},
		{"alive", local, with, "GET", "/livez", none, 200, "ok"},
		{"ready", local, with, "GET", "/readyz", none, 200, "ok"},
		{"metrics", local, with, "GET", "/metrics", none, 200, "stint_"},
		{"the lab", local, with, "GET", "/lab/", none, 200, "lab/"},
		{"a file of it", local, with, "GET", "/lab/main.js", none, 200, "lab/main.js"},
		{"no slash", local, with, "GET", "/lab", none, 308, ""},
		{"a simulation", local, with, "POST", "/v1/simulate", none, 200, "simulate/v1/simulate"},
		{"a simulation by GET", local, with, "GET", "/v1/simulate", none, 405, "use POST"},
		{"elsewhere", local, with, "GET", "/v1/elsewhere", none, 404, "there is /livez, /readyz, /metrics, /lab/"},
		{"what clients ask", local, with, "POST", "/v1/peek", none, 404, "/v1/peek is answered by stint serve, at its address for clients (--http); POST /v1/inspect shows"},
		{"elsewhere, with the API", local, api, "GET", "/v1/rule", none, 404, "/lab/, /v1/openapi.json"},
		{"another name", local, with, "GET", "/lab/", header("Host", "lab.example"), 421, "Host names another machine"},
		{"another name, for a simulation", local, with, "POST", "/v1/simulate", header("Host", "192.0.2.1"), 421, ""},
		{"a page of another origin", local, with, "POST", "/v1/simulate", header("Sec-Fetch-Site", "cross-site"), 403, "another origin"},
		{"a page of another origin, at the lab", local, with, "POST", "/lab/v1/simulate", header("Origin", "http://lab.example"), 403, "another origin"},
		{"its own page", local, with, "POST", "/lab/v1/simulate", header("Sec-Fetch-Site", "same-origin"), 200, "lab/v1/simulate"},
		{"tokens are for others", local, tokens, "GET", "/lab/", none, 200, "lab/"},
		{"metrics, too", local, tokens, "GET", "/metrics", none, 200, "stint_"},
		{"without a lab", local, bare, "GET", "/lab/", none, 404, "there is /livez, /readyz, /metrics"},
		{"without a simulator", local, bare, "POST", "/v1/simulate", none, 404, ""},

		{"a socket", socket, with, "GET", "/lab/", header("Host", "any"), 200, "lab/"},
		{"a socket and another origin", socket, with, "POST", "/v1/simulate", header("Sec-Fetch-Site", "cross-site"), 403, ""},

		{"others, without tokens", others, with, "GET", "/lab/", none, 404, ""},
		{"others, without tokens, simulating", others, with, "POST", "/v1/simulate", none, 404, ""},
		{"others, without tokens, metrics", others, with, "GET", "/metrics", none, 200, "stint_"},
		{"others, with tokens", others, tokens, "GET", "/lab/", none, 401, "want a token"},
		{"others, with tokens, a file", others, tokens, "GET", "/lab/main.js", none, 401, ""},
		{"others, with tokens, simulating", others, tokens, "POST", "/v1/simulate", none, 401, ""},
		{"others, with tokens, metrics", others, tokens, "GET", "/metrics", none, 401, ""},
		{"others, with tokens, alive", others, tokens, "GET", "/livez", none, 200, "ok"},
		{"an asker's metrics", others, tokens, "GET", "/metrics", header("Authorization", "Bearer "+asker), 200, "stint_"},
		{"an asker's lab", others, tokens, "GET", "/lab/", header("Authorization", "Bearer "+asker), 401, ""},
		{"an operator's lab", others, tokens, "GET", "/lab/", header("Authorization", "Bearer "+operator), 200, "lab/"},
		{"an operator's browser", others, tokens, "POST", "/lab/v1/simulate", basic(operator), 200, "lab/"},
		{"an operator's simulation", others, tokens, "POST", "/v1/simulate", basic(operator), 200, ""},
		{"an asker's browser", others, tokens, "GET", "/lab/", basic(asker), 401, ""},
		{"no password", others, tokens, "GET", "/lab/", basic(""), 401, ""},
	} {
		r := httptest.NewRequest(c.method, "http://127.0.0.1:9090"+c.path, nil)
		if r.Header.Set(c.header[0], c.header[1]); c.header[0] == "Host" {
			r.Host = c.header[1]
		}
		w := served(server.NewAdminHandler(c.addr, c.o), r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.answer) {
			t.Errorf("%s: %d %.300s; want %d and %q", c.name, w.Code, w.Body, c.status, c.answer)
		}
		if strings.Contains(w.Body.String(), operator) || c.status == 401 && len(w.Header().Values("Www-Authenticate")) != 2 {
			t.Errorf("%s: %v %s", c.name, w.Header(), w.Body)
		}
	}
	index := served(server.NewAdminHandler(others, with), httptest.NewRequest("GET", "/", nil))
	if strings.Contains(index.Body.String(), "lab") || !strings.HasPrefix(index.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("the index where there is no lab: %v %s", index.Header(), index.Body)
	}
}
