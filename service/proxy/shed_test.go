package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/service/proxy"
)

// TestInFlight sends more requests than may wait for the upstream: the others are refused at once, and
// not charged.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, "rules: [{name: a, key: [ip], limits: 3/h}]", proxy.Options{MaxInFlight: 2, MaxInFlightPerAddress: 2})
		for range 7 {
			_ = r.post("192.0.2.1:1", "/slow").Close()
			synctest.Wait()
		}
		r.want(http.StatusServiceUnavailable, 5)
		if got := asked(t.Context(), r.h, "192.0.2.1:1", "/"); got.Header().Get("Retry-After") != "1" || r.h.(*proxy.Handler).Shed() != 6 {
			t.Errorf("beyond the bound: %d, %v", got.Code, got.Header())
		}
		close(r.goOn)
		r.want(http.StatusOK, 2)
		for range 2 { // three in all were charged
			_ = r.post("192.0.2.1:1", "/").Close()
			synctest.Wait()
		}
		r.want(http.StatusOK, 3)
		r.want(http.StatusTooManyRequests, 1)
	})
}

// TestInFlightShare has four addresses send more than their shares of requests that the upstream does
// not answer: other addresses pass, and a trusted proxy may have all.
func TestInFlightShare(t *testing.T) {
	arrived, finish := make(chan bool, 64), make(chan struct{})
	server := upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			arrived <- true
			<-finish
		}
	})
	client := httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}}
	h := handler(t, oneRule(t, "ip", "1000000/h"), proxy.Options{Upstream: server, Client: client, MaxInFlight: 16})
	ask := func(path, peer string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = peer
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	var all sync.WaitGroup
	var refused atomic.Int64
	hang := func(n int, peer string) {
		for i := range n {
			all.Go(func() {
				if ask("/hang", fmt.Sprintf(peer, i)) == http.StatusServiceUnavailable {
					refused.Add(1)
					arrived <- false
				}
			})
			<-arrived
		}
	}
	hang(8, "[2001:db8::%x]:1")
	if refused.Load() != 5 {
		t.Errorf("%d of 8 of one network refused, want 5: it has a quarter of what is free", refused.Load())
	}
	for _, other := range []string{"192.0.2.11:%d", "192.0.2.12:%d", "192.0.2.13:%d"} {
		hang(8, other)
	}
	if got := ask("/", "192.0.2.1:1"); got != http.StatusOK {
		t.Errorf("another address, beside four that have all they may: %d", got)
	}
	before := refused.Load()
	hang(7, "127.0.0.3:%d")
	if refused.Load() != before {
		t.Errorf("%d of a trusted proxy refused", refused.Load()-before)
	}
	if got := ask("/", "192.0.2.1:1"); got != http.StatusServiceUnavailable {
		t.Errorf("beyond the bound in all: %d", got)
	}
	close(finish)
	all.Wait()
	if got := ask("/", "[2001:db8::1]:1"); got != http.StatusOK {
		t.Errorf("afterwards: %d", got)
	}
}

// TestInFlightAtOnce has more requests asked of the upstream at one moment than may wait for it: their
// bodies end together, or their turn comes at once. No more reach it than may, and once these have been
// answered all places are free again.
func TestInFlightAtOnce(t *testing.T) {
	const most, sent = 16, 40
	for _, c := range []struct {
		name, rules string
		each        int   // 1 if each is of another address
		least, want int64 // an address may have a quarter of what is free, which is less while its own begin
	}{
		{"bodies of one address", "rules: [{name: a, key: [], limits: 1000/s}]", 0, most / 5, most / 4},
		{"bodies that a rule reads", "rules: [{name: a, key: [body./model], limits: 1000/s}]", 0, most / 5, most / 4},
		{"turns of many addresses", "rules: [{name: a, key: [], limits: 100/s burst 100 leaky_queue}]", 1, most, most},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom(t, c.rules, proxy.Options{MaxInFlight: most})
				var refused int64
				for range 2 {
					var bodies []*io.PipeWriter
					for i := range sent {
						bodies = append(bodies, r.post(fmt.Sprintf("192.0.2.%d:1", i*c.each), "/work"))
					}
					synctest.Wait()
					for _, w := range bodies {
						go func() {
							_, _ = io.WriteString(w, `{"model":"m"}`) // of a body that is refused nobody reads
							_ = w.Close()
						}()
					}
					time.Sleep(time.Second)
					synctest.Wait()
					asked := r.behind.Swap(0)
					if asked < c.least || asked > c.want {
						t.Errorf("%d reached the server at once, want %d", asked, c.want)
					}
					refused += sent - asked
					r.want(http.StatusServiceUnavailable, refused)
					for range asked {
						r.goOn <- struct{}{}
					}
					synctest.Wait() // their places are free
				}
			})
		})
	}
}

// TestInFlightOfSlowClients has clients behind a trusted proxy whose bodies do not come, more than
// requests may be in flight, over HTTP/1.1 and gRPC: others are answered all the same. Requests that
// wait for the upstream again are bounded again.
func TestInFlightOfSlowClients(t *testing.T) {
	trusted := httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, "rules: [{name: a, key: [ip], limits: 1000000/h}]", proxy.Options{Client: trusted, MaxInFlight: 2, BodyStall: time.Hour})
		var ends []*io.PipeWriter
		for i := range 6 {
			ends = append(ends, r.post("10.0.0.1:1", "/work", "Content-Type", []string{"text/plain", "application/grpc"}[i%2]))
			time.Sleep(time.Second) // by then it is known to wait for its client
		}
		r.good("beside slow clients", "198.51.100.1:1")
		for _, end := range ends {
			_ = end.Close()
		}
		synctest.Wait()
		if behind := r.behind.Load(); behind != 7 {
			t.Errorf("%d requests have reached the server, want 7", behind)
		}
		_ = r.post("198.51.100.1:1", "/").Close()
		r.want(http.StatusServiceUnavailable, 1)
		close(r.goOn)
		r.want(http.StatusOK, 7)
		r.good("afterwards", "198.51.100.1:1")
	})
}

// TestOverload measures goodput: it sends requests at three times the rate that the upstream can take,
// from clients that give up after a second, and compares with the most that it can answer in time. Set
// STINT_OVERLOAD to run it.
func TestOverload(t *testing.T) {
	if os.Getenv("STINT_OVERLOAD") == "" {
		t.Skip("STINT_OVERLOAD=1 measures it, in a minute")
	}
	const workers, each = 2, 20 * time.Millisecond // 100 a second
	for _, bound := range []int{-1, 32} {
		best := 0.0
		for _, rate := range []int{50, 80, 100, 150, 300} {
			slots, over := make(chan struct{}, workers), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				select {
				case slots <- struct{}{}: // it works even for those who have given up
					time.Sleep(each)
					<-slots
				case <-over:
				}
			}))
			f := start(t, mustURL(t, server.URL), 0, oneRule(t, "none", "1000000/s"), httplimit.ClientIP{}, proxy.Options{MaxInFlight: bound, MaxInFlightPerAddress: bound, MaxLag: time.Second})
			good := goodput(f.address, rate, 5*time.Second)
			best = max(best, good)
			t.Logf("in flight %3d: %5d/s asked, %6.0f/s answered in time, %.2f of the best", bound, rate, good, good/best)
			close(over)
			server.Close()
		}
	}
}

// goodput sends requests at a rate, and returns how many a second were answered 200 within a second.
func goodput(address string, rate int, long time.Duration) float64 {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}
	defer client.CloseIdleConnections()
	var good atomic.Int64
	var all sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < long; <-tick.C {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
			if err != nil {
				return
			}
			answer, err := client.Do(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close() // read
			if answer.StatusCode == http.StatusOK {
				good.Add(1)
			}
		})
	}
	all.Wait()
	return float64(good.Load()) / long.Seconds()
}
