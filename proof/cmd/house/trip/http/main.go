// Command http sends one request through the middleware of a policy in memory,
// and writes which code it ran through into the directory that it is given.
package main

import (
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/coverage"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

const rules = `{"rules": [
	{"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"], "limits": ["5/m"]},
	{"name": "site", "key": ["ip"], "limits": ["10/s burst 20"]}
]}`

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(covers string) error {
	parsed, err := policy.Parse([]byte(rules))
	if err != nil {
		return err
	}
	p, err := policy.New(memstore.New(memstore.Options{}), parsed, policy.Options{})
	if err != nil {
		return err
	}
	guard, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{})
	if err != nil {
		return err
	}
	handler := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "http://example.com/login", nil))
		return w.Code
	}
	ask() // what happens once is not the way of a request
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	if code := ask(); code != http.StatusOK {
		log.Fatalf("answered %d", code)
	}
	if err := coverage.WriteMetaDir(covers); err != nil {
		return err
	}
	return coverage.WriteCountersDir(covers)
}
