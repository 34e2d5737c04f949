// Command tokens gives a customer 10,000 tokens an hour of a language model: each
// call reserves the most that it may use, and gives back the rest.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// complete stands for the call of the model. It returns the tokens that the call used.
func complete(prompt string) (used int64) { return int64(100 * len(prompt)) }

func main() {
	ctx := context.Background()
	limit, err := stint.Parse("10_000 per hour sliding_log")
	if err != nil {
		log.Fatal(err)
	}
	budget, err := stint.NewLimiter(memstore.New(memstore.Options{}), "tokens", limit)
	if err != nil {
		log.Fatal(err)
	}
	const maxTokens = 4_000
	for _, prompt := range []string{"why is the sky blue?", "and at night?", "why?", "write a long book about that", "thanks"} {
		// If no answer has come after five minutes, the reserved tokens stay charged.
		d, reservation, err := budget.Reserve(ctx, "customer 7", maxTokens, 5*time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		if !d.Allowed {
			fmt.Printf("%q: denied, %d tokens left\n", prompt, d.Remaining)
			continue
		}
		used := complete(prompt)
		if d, err = reservation.Settle(ctx, used); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q: %d tokens, %d left\n", prompt, used, d.Remaining)
	}
}
