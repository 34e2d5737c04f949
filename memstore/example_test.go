package memstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// The example of README.md, which TestDocsPackages holds to this one.
func Example() {
	store := memstore.New(memstore.Options{MaxKeys: 100_000})
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "api", stint.PerSecond(10), stint.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	for i := range 5000 {
		if _, err := limiter.Allow(context.Background(), fmt.Sprint("client ", i)); err != nil {
			log.Fatal(err)
		}
	}
	stats := store.Stats()
	fmt.Println(stats.Keys, "keys,", stats.Overflowed, "decisions on a shared state")
	// Output:
	// 10000 keys, 0 decisions on a shared state
}
