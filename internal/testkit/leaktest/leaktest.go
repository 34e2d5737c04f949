// Package leaktest is a main function of tests that looks for goroutines that are
// left, once those that are about to end have had time for it: on a busy machine
// that is more than the moment that goleak.Find gives them.
package leaktest

import (
	"fmt"
	"os"
	"time"
)

// patience is how long goroutines may take to end.
const patience = time.Minute

// Main runs the tests and ends the process, with status 1 if they failed or if find,
// which is goleak.Find, finds goroutines that are left: call it in TestMain.
func Main[Option any](m interface{ Run() int }, find func(...Option) error, ignore ...Option) {
	status := m.Run()
	if status == 0 {
		err := find(ignore...)
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); err = find(ignore...) {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "after all tests have passed:", err)
			status = 1
		}
	}
	os.Exit(status)
}
