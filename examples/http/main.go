// Command http is an HTTP server that lets each address make three requests an
// hour, and a client that makes four.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
)

func main() {
	store := memstore.New(memstore.Options{}) // one for the whole program
	limiter, err := stint.NewLimiter(store, "api", stint.PerHour(3))
	if err != nil {
		log.Fatal(err)
	}
	// If clients come through a balancer, name it in ClientIP.Trusted, or all clients share one
	// key.
	guard, err := httplimit.New(limiter, httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	})
	server := httptest.NewServer(guard(hello)) // in your program: http.ListenAndServe(":8080", guard(hello))
	defer server.Close()

	for range 4 {
		response, err := http.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s", response.Status, body)
	}
}
