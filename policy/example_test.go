package policy_test

import (
	"context"
	"fmt"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

func Example() {
	rules, err := policy.Parse([]byte(`{"rules": [{
		"name": "login",
		"match": {"method": "POST", "path": "/login"},
		"key": ["ip"],
		"limits": ["2 per minute"]
	}]}`))
	if err != nil {
		panic(err) // says line, column and what would be right
	}
	p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{})
	if err != nil {
		panic(err)
	}
	attrs := policy.Map{"method": "POST", "path": "/login", "ip": "192.0.2.7"}
	var r policy.Result
	for range 3 {
		if err := p.Decide(context.Background(), attrs, 1, &r); err != nil {
			panic(err)
		}
		fmt.Println(r.Decision.Allowed, r.Decision.Remaining, r.Rules[r.Tightest].Rule)
	}
	// Output:
	// true 1 login
	// true 0 login
	// false 0 login
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
