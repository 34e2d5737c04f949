package redisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/redisstore"
)

// The example of README.md, which TestDocsPackages holds to this one.
func Example() {
	shared, err := redisstore.New(redisstore.Options{URL: "redis://localhost:6379"})
	if err != nil {
		log.Fatal(err)
	}
	store := fallback.New(shared, fallback.Options{Nodes: 3}) // who decides while Redis is away
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "api", stint.PerSecond(10), stint.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	decision, err := limiter.Take(context.Background(), "client 7", 1) // one round trip
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(decision.Allowed, decision.Remaining)
}
