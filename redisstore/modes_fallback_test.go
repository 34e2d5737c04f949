package redisstore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestDegradedOnce has a server away under a mode that also answers from memory: an
// answer from memory does not end the outage, so OnChange is called once for it, and
// once when the server is there again.
func TestDegradedOnce(t *testing.T) {
	server := redistest.Start(t)
	shared := open(t, server.URL(), redisstore.Options{Prefix: "degraded", NewKeys: -1})
	var mu sync.Mutex
	var changes []error
	store := fallback.New(shared.Mode(redisstore.Async), fallback.Options{OnChange: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		changes = append(changes, err)
	}})
	defer store.Close()
	limit := made.Bound(t, store, "api", parse(t, "100000/24h"))
	known := func() error {
		_, err := limit.Allow(ctx, "known", 1)
		return err
	}
	if err := known(); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for i := range 200 {
		if _, err := limit.Allow(ctx, fmt.Sprint("new ", i), 1); err != nil {
			t.Fatal(err)
		}
		if err := known(); err != nil { // this process knows its usage
			t.Fatal(err)
		}
	}
	mu.Lock()
	outage := slices.Clone(changes)
	mu.Unlock()
	if len(outage) != 1 || outage[0] == nil {
		t.Errorf("%d changes in an outage: %v", len(outage), outage[:min(4, len(outage))])
	}
	server.Restart(t)
	eventually(t, "the outage does not end", func() bool {
		if _, err := limit.Allow(ctx, "later", 1); err != nil {
			t.Fatal(err)
		}
		return !store.Stats().Degraded
	})
	if mu.Lock(); len(changes) != 2 || changes[1] != nil {
		t.Errorf("%d changes with the end of the outage", len(changes))
	}
	mu.Unlock()
}
