package main

func Example() {
	main()
	// Output:
	// 200 OK hello
	// 200 OK hello
	// 200 OK hello
	// 429 Too Many Requests {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["api"]}
}
