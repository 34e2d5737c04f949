package stint_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// The example of README.md, which docs_test.go holds to this one.
func Example() {
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "api", stint.PerMinute(1).WithBurst(3))
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		d, err := limiter.Take(context.Background(), "client 7", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter.Seconds())
	}
	// Output:
	// true 2 0
	// true 1 0
	// true 0 0
	// false 0 60
}

// A limit that cannot be read says what is wrong, where, and what would be
// right.
func ExampleParse() {
	_, err := stint.Parse("10 per fortnight")
	fmt.Println(err)
	limit, _ := stint.Parse("10 per minute burst 20")
	fmt.Println(limit)
	// Output:
	// stint: limit "10 per fortnight", column 8: unknown period "fortnight"; write s, m, h, d, w, a number of them such as "2 hours", or a duration such as 90s or 1h30m
	// 10/1m burst 20
}

// Several limits hold each key at once: all are charged, or none.
func ExampleNewLimiter_layers() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "api",
		stint.PerMinute(1).WithBurst(2), stint.PerDayIn(1000, "UTC"))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := limiter.Take(context.Background(), "client 7", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(d.Allowed, d.Limit, d.Remaining)
		for layer := range d.Denied.Limits() {
			fmt.Print(" denied by ", limiter.Limits()[layer])
		}
		fmt.Println()
	}
	// Output:
	// true 2 1
	// true 2 0
	// false 2 0 denied by 1/1m burst 2
}

// A reservation takes what a request may cost, and gives back what it did not.
func ExampleLimiter_Reserve() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	ctx := context.Background()
	limiter, err := stint.NewLimiter(store, "api", stint.PerHour(1000).WithAlgorithm(stint.SlidingLog))
	if err != nil {
		log.Fatal(err)
	}
	d, reservation, err := limiter.Reserve(ctx, "client 7", 400, time.Minute)
	if err != nil || !d.Allowed {
		log.Fatal(d, err)
	}
	d, err = reservation.Settle(ctx, 150) // it cost less
	fmt.Println(d.Remaining, err)
	// Output:
	// 850 <nil>
}

// A caller of a language model waits until its estimate has room, and settles at
// the tokens that the call used. What it gives back lets others pass.
func ExampleLimiter_WaitReserve() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	ctx := context.Background()
	limiter, err := stint.NewLimiter(store, "tokens", stint.PerMinute(100_000).WithBurst(8_000))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		reservation, err := limiter.WaitReserve(ctx, "model", 4_000, time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		used := int64(1_200) // of the call
		if _, err := reservation.Settle(ctx, used); err != nil {
			log.Fatal(err)
		}
	}
	d, err := limiter.Peek(ctx, "model", 4_000)
	fmt.Println(d.Allowed, err)
	// Output:
	// true <nil>
}

// Two calls at once, and 10 ms between any two: each waits for its turn and a place.
func ExampleLimiter_AcquireN() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	ctx := context.Background()
	limiter, err := stint.NewLimiter(store, "calls", stint.InFlight(2), stint.Every(10*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	var made atomic.Int64
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			d, release, err := limiter.AcquireN(ctx, "partner", 1, time.Minute)
			if err != nil || !d.Allowed {
				return
			}
			defer release()
			made.Add(1)
		})
	}
	calls.Wait()
	fmt.Println(made.Load(), "calls")
	// Output:
	// 4 calls
}

// A queue runs work at an even pace, and refuses what finds no room.
func ExampleQueue() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	limit, err := stint.Parse("100/s burst 10 leaky_queue")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := stint.NewLimiter(store, "api", limit)
	if err != nil {
		log.Fatal(err)
	}
	queue, err := stint.NewQueue(limiter, "upstream", stint.QueueOptions{MaxAge: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer queue.Close()
	for i := range 3 {
		err := queue.Do(context.Background(), func(context.Context) error {
			fmt.Println("call", i)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// call 0
	// call 1
	// call 2
}

// One request and an estimate of 4,000 tokens are one decision, and are settled
// at the tokens that were used.
func ExampleAll() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	ctx := context.Background()
	requests, err := stint.NewLimiter(store, "requests", stint.PerMinute(10))
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := stint.NewLimiter(store, "tokens", stint.PerHour(100_000).WithAlgorithm(stint.SlidingLog))
	if err != nil {
		log.Fatal(err)
	}
	request := stint.All(requests.Key("client 7"), tokens.Key("client 7").Cost(4_000))
	d, reservation, err := request.Reserve(ctx, time.Minute)
	if err != nil || !d.Allowed {
		log.Fatal(d, err)
	}
	if _, err := reservation.Settle(ctx, 1, 1_200); err != nil {
		log.Fatal(err)
	}
	d, err = tokens.Peek(ctx, "client 7", 1)
	fmt.Println(d.Remaining, err)
	// Output:
	// 98800 <nil>
}

// A program that has caught a client at something keeps it out for a time, and lets it in
// again.
func ExampleLimiter_Block() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	ctx := context.Background()
	limiter, err := stint.NewLimiter(store, "api", stint.PerMinute(100).WithBan(time.Microsecond))
	if err != nil {
		log.Fatal(err)
	}
	show := func() {
		d, err := limiter.Take(ctx, "client 7", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Banned, d.RetryAfter.Seconds())
	}
	if err := limiter.Block(ctx, "client 7", time.Hour); err != nil {
		log.Fatal(err)
	}
	show()
	if err := limiter.Unblock(ctx, "client 7"); err != nil {
		log.Fatal(err)
	}
	show()
	// Output:
	// false true 3600
	// true false 0
}
