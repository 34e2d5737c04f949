package main_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/service/testkit/wire"
)

// TestProxyEdges sends the proxy one key in eight spellings, in a header and in a
// parameter, as HTTP/2 carries them: for the server behind all are one, and so no more
// pass than one key may. Names in brackets, which Express and Rack read without them,
// never pass.
func TestProxyEdges(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer behind.Close()
	rules := writeFile(t, t.TempDir()+"/stint.yaml", `rules:
  - {name: header, match: {path: /header}, key: [header.x-api-key], limits: 3/h}
  - {name: query, match: {path: /query}, key: [query.api_key], limits: 3/h}
  - {name: login, match: {query.action: login}, block: true}
`)
	p := launch(t, "proxy", "proxy", "-c", rules, "--upstream", behind.URL, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	p.listening()
	address := strings.TrimPrefix(p.front, "http://")
	send := func(r wire.Request) string {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return wire.Frames(conn, r, nil).Status
	}
	for name, request := range map[string]func(blanks string) wire.Request{
		"header": func(blanks string) wire.Request { return wire.Get("/header", "x-api-key", "k1"+blanks) },
		"query":  func(blanks string) wire.Request { return wire.Get("/query?api_key=k1" + blanks) },
	} {
		got := make(map[string]int)
		for range 4 {
			for n := range 8 {
				got[send(request(strings.Repeat(" ", n)))]++
			}
		}
		if got["200"] != 3 || got["429"] != 1 || got["400"]+got[""] != 28 {
			t.Errorf("%s: of 32 requests of one key %v by status; want 3 passed", name, fmt.Sprint(got))
		}
	}
	for _, query := range []string{"[action]=login", "[]action=login", "[action=login", "action]=login"} {
		if status := send(wire.Get("/?" + query)); status != "400" {
			t.Errorf("%s: %s, want 400", query, status)
		}
	}
}
