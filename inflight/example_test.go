package inflight_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stint-dev/stint/inflight"
)

func Example() {
	room := inflight.NewRoom(inflight.NewMemory(), 0) // 0: this process alone gives units back
	ctx := context.Background()
	report := func() []inflight.Hold { // two reports of a customer may run at one moment
		return []inflight.Hold{{Name: "reports", Key: "customer 7", Limit: 2, Units: 1}}
	}
	var running [][]inflight.Hold
	for range 3 {
		holds := report()
		ok, err := room.Acquire(ctx, holds)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ok, holds[0].Running)
		if ok {
			running = append(running, holds)
		}
	}
	room.Release(running[0]) // the first report has ended
	ok, err := room.Look(ctx, report())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ok)
	// Output:
	// true 1
	// true 2
	// false 2
	// true
}
