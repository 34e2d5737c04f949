// Command redis runs two servers that share a limit of three an hour through Redis, and continue
// without it. Its argument is the URL of Redis.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/redisstore"
)

// server returns the limiter of one of two processes.
func server(o redisstore.Options) *stint.Limiter {
	shared, err := redisstore.New(o)
	if err != nil {
		log.Fatal(err)
	}
	// While Redis is down, each of the two allows half of the limit.
	store := fallback.New(shared, fallback.Options{Nodes: 2})
	limiter, err := stint.NewLimiter(store, "example", stint.PerHour(3))
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

func main() {
	url := "redis://localhost:6379"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	run(os.Stdout, redisstore.Options{URL: url})
}

func run(w io.Writer, o redisstore.Options) {
	ctx := context.Background()
	a, b := server(o), server(o)
	if err := a.Reset(ctx, "client 7"); err != nil { // forgets what an earlier run used
		log.Fatal(err)
	}
	for i := range 4 {
		name, limiter := "a", a
		if i%2 == 1 {
			name, limiter = "b", b
		}
		d, err := limiter.Take(ctx, "client 7", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(w, "server %s: allowed %t, %d left\n", name, d.Allowed, d.Remaining)
	}
}
