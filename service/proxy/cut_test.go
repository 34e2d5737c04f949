package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/service/proxy"
)

const cutRules = `
rules:
  - name: tokens
    key: [header.x-customer]
    limits: ["300 per 10000h fixed_window"]
    cost: {usage: gemini, reserve: 20, cut: true}
`

// TestCutShared: six streams that run at once share the budget of one key. Together they deliver
// its 300 tokens and at most a chunk more each, and what they deliver is charged.
func TestCutShared(t *testing.T) {
	inStores(t, cutShared)
}

// inStores runs a test in memory and over Redis.
func inStores(t *testing.T, test func(t *testing.T, store stint.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, memstore.New(memstore.Options{})) })
	t.Run("redis", func(t *testing.T) {
		store, err := redisstore.New(redisstore.Options{URL: redistest.Start(t).URL(), Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		test(t, patient{store})
	})
}

// A patient store settles however long it takes: on a busy machine that may be more than the second
// that a response has.
type patient struct{ *redisstore.Store }

func (p patient) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	return p.Store.Settle(context.WithoutCancel(ctx), id, cost)
}

func cutShared(t *testing.T, store stint.Store) {
	const streams, chunk = 6, 7
	var arrived sync.WaitGroup
	arrived.Add(streams)
	next := make([]chan struct{}, streams) // lets a stream send one chunk more
	for i := range next {
		next[i] = make(chan struct{}, 1)
	}
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		_, _ = fmt.Sscan(r.URL.Path[1:], &i)
		w.Header().Set("Content-Type", "text/event-stream")
		arrived.Done()
		for tokens := chunk; ; tokens += chunk {
			select {
			case <-next[i]:
			case <-r.Context().Done():
				return
			}
			_, _ = fmt.Fprintf(w, "data: {\"usageMetadata\":{\"totalTokenCount\":%d}}\n\n", tokens)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(behind.Close)
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, target, time.Minute, nil, httplimit.ClientIP{}, proxy.Options{Source: sourceOn(t, store, yaml(t, cutRules))})
	var all sync.WaitGroup
	got := make([]int, streams)
	for i := range got {
		all.Go(func() {
			next[i] <- struct{}{}
			answer := f.get(t, fmt.Sprint("/", i), "X-Customer", "a")
			defer func() { _ = answer.Body.Close() }()
			arrived.Wait()
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data:") {
					got[i] += chunk
					next[i] <- struct{}{}
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range got {
		sum += n
	}
	if sum < 300-streams*chunk || sum > 300+streams*chunk { // one that is cut may hold less than a chunk
		t.Errorf("%v: %d tokens are delivered of 300", got, sum)
	}
	await.Until(t, fmt.Sprint(sum, " tokens are charged"), func() bool {
		used, err := f.source.Policy().UsedOf(t.Context(), "tokens", "a")
		return err == nil && used[0].Used == int64(sum)
	})
}
