package main

func Example() {
	main()
	// Output:
	// OK
	// OK
	// ResourceExhausted
}
