// Command queue calls an API that allows five calls a second, at that pace. Calls that find no room
// in the queue are refused at once, and all others start within the limit.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

func main() { run(os.Stdout) }

func run(w io.Writer) {
	// One call starts and seven wait, at most 1.4 s.
	limit, err := stint.Parse("5/s burst 7 leaky_queue")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "outbound", limit)
	if err != nil {
		log.Fatal(err)
	}
	// A call that cannot start within a minute is not worth making.
	queue, err := stint.NewQueue(limiter, "the API", stint.QueueOptions{MaxAge: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	began, done, accepted := time.Now(), make(chan string), 0
	for i := range 10 {
		err := queue.Submit(func() { // queue.Do would wait for it
			done <- fmt.Sprintf("call %d after %v", i, time.Since(began).Round(100*time.Millisecond))
		})
		switch {
		case err == nil:
			accepted++
		case errors.Is(err, stint.ErrFull):
			fmt.Fprintf(w, "call %d refused\n", i)
		default:
			log.Fatal(err)
		}
	}
	for range accepted {
		fmt.Fprintln(w, <-done)
	}
	queue.Close()
}
