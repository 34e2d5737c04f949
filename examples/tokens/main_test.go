package main

func Example() {
	main()
	// Output:
	// "why is the sky blue?": 2000 tokens, 8000 left
	// "and at night?": 1300 tokens, 6700 left
	// "why?": 400 tokens, 6300 left
	// "write a long book about that": 2800 tokens, 3500 left
	// "thanks": denied, 3500 tokens left
}
