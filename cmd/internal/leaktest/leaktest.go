// Package leaktest is a main function of tests that looks for goroutines that are
// left, once those that are about to end have had time for it: on a busy machine
// that is more than the moment that goleak gives them.
package leaktest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end.
const patience = time.Minute

// Main runs the tests and ends the process, with status 1 if they failed or left
// goroutines behind: call it in TestMain.
func Main(m interface{ Run() int }, ignore ...goleak.Option) {
	status := m.Run()
	if status == 0 {
		err := goleak.Find(ignore...)
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); err = goleak.Find(ignore...) {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "after all tests have passed:", err)
			status = 1
		}
	}
	os.Exit(status)
}
