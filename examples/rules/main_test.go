package main

func Example() {
	run("rules.json")
	// Output:
	// POST /login 200 OK
	// POST /login 200 OK
	// POST /login 429 Too Many Requests
	// POST /basket 200 OK
}
