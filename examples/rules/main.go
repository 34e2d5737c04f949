// Command rules is an HTTP server with the rules of a file, such as two logins an hour for each
// address. Its argument is the file.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

func main() {
	file := "examples/rules/rules.json"
	if len(os.Args) > 1 {
		file = os.Args[1]
	}
	run(file)
}

func run(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	rules, err := policy.Parse(text)
	if err != nil {
		log.Fatal(err) // names the line, the column, and what would be right
	}
	p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	welcome := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") })
	server := httptest.NewServer(guard(welcome))
	defer server.Close()

	for _, path := range []string{"/login", "/login", "/login", "/basket"} {
		response, err := http.Post(server.URL+path, "", nil)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		fmt.Println("POST", path, response.Status)
	}
}
