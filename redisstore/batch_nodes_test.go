package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// An oneNode driver is of a cluster with a node that serves everything, and answers
// that all buckets are empty, when it is told to.
type oneNode struct {
	answers
	mu    sync.Mutex
	free  bool            // calls are answered at once
	sizes []int           // of calls, in requests
	turns []chan struct{} // a call each: it is answered when its own is closed
	lost  string          // a call for this key says that nobody serves its slot
}

func (*oneNode) Cluster() bool { return true }

func (*oneNode) Slots(context.Context) ([]redisstore.SlotRange, error) {
	return []redisstore.SlotRange{{First: 0, Last: 16383, Node: "one"}}, nil
}

func (d *oneNode) EvalSHA(_ context.Context, _ string, keys, args []string) (any, error) {
	n, together := len(keys), args[0] == "R"
	if args[0] == "X" {
		more, _ := strconv.Atoi(args[1])
		n, together = 1+more, args[2+more] == "R"
	}
	d.mu.Lock()
	turn := make(chan struct{})
	if d.free {
		close(turn)
	}
	d.sizes, d.turns = append(d.sizes, n), append(d.turns, turn)
	d.mu.Unlock()
	<-turn
	for _, name := range append(keys, args...) {
		if d.lost != "" && strings.HasSuffix(name, d.lost) {
			return nil, redisstore.ReplyError("CLUSTERDOWN Hash slot not served")
		}
	}
	if !together {
		return int64(0), nil
	}
	all := make([]any, n)
	for i := range all {
		all[i] = int64(0)
	}
	return all, nil
}

func (d *oneNode) calls() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]int(nil), d.sizes...)
}

// answer has calls answered, by their number.
func (d *oneNode) answer(from, to int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, turn := range d.turns[from:to] {
		close(turn)
	}
}

// TestBatchNode has requests for one of the nodes of a cluster wait while a call
// with many is on its way, so that the next one is no smaller than it has to be. A
// second call leaves beside one with few, and when it is full.
func TestBatchNode(t *testing.T) {
	d := new(oneNode)
	store := open(t, "", redisstore.Options{Driver: d, NewKeys: -1, Timeout: 1000 * time.Hour})
	limit := bind(t, store, "1/s burst 1000")
	var wg sync.WaitGroup
	asked := 0
	ask := func(n int) {
		for range n {
			key := fmt.Sprint("key", asked)
			asked++
			wg.Go(func() {
				if _, err := limit.Decide(ctx, meter.OpTake, key, 1); err != nil {
					t.Error(err)
				}
			})
		}
	}
	waits := func(want int, sizes ...int) {
		t.Helper()
		eventually(t, fmt.Sprintf("not %d waiting and calls of %v", want, sizes), func() bool {
			return store.Waiting(false) == want && fmt.Sprint(d.calls()) == fmt.Sprint(sizes)
		})
	}
	ask(1) // has the store ask who serves what
	eventually(t, "no node is known", store.KnowsNodes)
	waits(0, 1)
	d.answer(0, 1)
	ask(1)
	waits(0, 1, 1)
	ask(1) // beside one
	waits(0, 1, 1, 1)
	ask(redisstore.Few + 2)
	waits(redisstore.Few+2, 1, 1, 1)
	d.answer(1, 2) // another is on its way still
	waits(0, 1, 1, 1, redisstore.Few+2)
	d.answer(2, 3)
	ask(redisstore.MostTogether - 1) // beside many
	waits(redisstore.MostTogether-1, 1, 1, 1, redisstore.Few+2)
	ask(1) // now it is full
	waits(0, 1, 1, 1, redisstore.Few+2, redisstore.MostTogether)
	d.answer(3, 5)
	wg.Wait()
}

// TestBatchUnserved has a call of many keys fail since nobody serves the slot of one
// of them: the others are decided.
func TestBatchUnserved(t *testing.T) {
	d := &oneNode{lost: "lost"}
	store := open(t, "", redisstore.Options{Driver: d, NewKeys: -1, Timeout: 1000 * time.Hour})
	limit := bind(t, store, "1/s burst 1000")
	var wg sync.WaitGroup
	ask := func(key string) {
		wg.Go(func() {
			if _, err := limit.Decide(ctx, meter.OpTake, key, 1); (err != nil) != (key == d.lost) {
				t.Errorf("%s: %v", key, err)
			}
		})
	}
	calls := func(sizes ...int) {
		t.Helper()
		eventually(t, fmt.Sprint("not calls of ", sizes), func() bool { return fmt.Sprint(d.calls()) == fmt.Sprint(sizes) })
	}
	ask("first") // has the store ask who serves what
	eventually(t, "no node is known", store.KnowsNodes)
	calls(1)
	d.answer(0, 1)
	ask("a")
	calls(1, 1)
	ask("b") // beside it
	calls(1, 1, 1)
	for _, key := range []string{"c", d.lost, "e"} {
		ask(key)
	}
	eventually(t, "not three that wait", func() bool { return store.Waiting(false) == 3 })
	d.answer(1, 3)
	calls(1, 1, 1, 3)
	d.mu.Lock()
	d.free = true
	d.mu.Unlock()
	d.answer(3, 4)
	wg.Wait()
	if got := fmt.Sprint(d.calls()); got != "[1 1 1 3 1 1 1]" { // each by itself
		t.Errorf("calls of %s", got)
	}
}
