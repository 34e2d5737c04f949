package main

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestPace runs the program in a bubble, whose clock stands still while anything runs.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		run(&out)
		const want = `call 8 refused
call 9 refused
call 0 after 0s
call 1 after 200ms
call 2 after 400ms
call 3 after 600ms
call 4 after 800ms
call 5 after 1s
call 6 after 1.2s
call 7 after 1.4s
`
		if out.String() != want {
			t.Errorf("it printed\n%s\nwant\n%s", &out, want)
		}
	})
}
