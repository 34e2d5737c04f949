package simulate_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/simulate"
)

func Example() {
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	runner, err := simulate.New(store, &clock, []string{"5/s burst 5"})
	if err != nil {
		fmt.Println(err)
		return
	}
	lines := strings.NewReader(`{"t":"0s","key":"a","cost":1}
{"t":"100ms","key":"a","cost":5}
`)
	if err := runner.Run(lines, os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"t":"0s","key":"a","allowed":true,"limit":5,"remaining":4,"retry_after":"0s","reset_after":"200ms"}
	// {"t":"100ms","key":"a","allowed":false,"limit":5,"remaining":4,"retry_after":"100ms","reset_after":"100ms","denied_by":["5/s burst 5"]}
}
