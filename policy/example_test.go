package policy_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// The example of README.md, which TestDocsPackages holds to this one.
func Example() {
	rules, err := policy.Parse([]byte(`{"rules": [
		{"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"], "limits": ["2 per hour"]},
		{"name": "site", "key": ["ip"], "limits": ["10 per hour"]}
	]}`))
	if err != nil {
		log.Fatal(err) // line, column, and what would be right
	}
	p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var r policy.Result
	for _, path := range []string{"/login", "/login", "/login", "/basket"} {
		request := policy.Map{"method": "POST", "path": path, "ip": "192.0.2.7"}
		if err := p.Decide(context.Background(), request, 1, &r); err != nil {
			log.Fatal(err)
		}
		fmt.Println(path, r.Decision.Allowed, r.Decision.Remaining, "left of", r.Rules[r.Tightest].Rule)
	}
	// Output:
	// /login true 1 left of login
	// /login true 0 left of login
	// /login false 0 left of login
	// /basket true 7 left of site
}

func ExampleRules_Explain() {
	rules, err := policy.Parse([]byte(`{"rules": [
		{"name": "login", "match": {"path": "/login"}, "key": ["ip"], "limits": ["5 per minute"], "final": true},
		{"name": "rest", "key": ["ip"], "limits": ["100 per minute"]}
	]}`))
	if err != nil {
		panic(err)
	}
	e, err := rules.Explain(policy.Map{"path": "//%6Cogin/", "ip": "2001:db8:0:0:7::1"})
	if err != nil {
		panic(err)
	}
	fmt.Print(e)
	// Output:
	// path "/login"
	// yes login: path is /login
	//       5/1m
	//       key ip="2001:db8::"
	//       ends the matching
	// no  rest: not tried: rule login ended the matching
}
