package fallback_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
)

func Example() {
	shared := memstore.New(memstore.Options{}) // in a service, a store of package redisstore
	store := fallback.New(shared, fallback.Options{Nodes: 2})
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "api", stint.PerHour(10))
	if err != nil {
		log.Fatal(err)
	}
	take := func() {
		decision, err := limiter.Take(context.Background(), "client 7", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(decision.Allowed, decision.Remaining, "of", decision.Limit)
	}
	take()
	shared.Close() // every call of the shared store fails now
	take()         // this process decides, by its half of the limit
	fmt.Println(store.Stats().Failed, "decided locally")
	// Output:
	// true 9 of 10
	// true 3 of 5
	// 1 decided locally
}
