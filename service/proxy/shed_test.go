package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
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
	client := httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}}
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, "rules: [{name: a, key: [ip], limits: 1000000/h}]", proxy.Options{Client: client, MaxInFlight: 16})
		hang := func(n int, peer string) (refused int64) {
			before := r.statuses[http.StatusServiceUnavailable].Load()
			for i := range n {
				_ = r.post(fmt.Sprintf(peer, i), "/slow").Close()
				synctest.Wait()
			}
			return r.statuses[http.StatusServiceUnavailable].Load() - before
		}
		if refused := hang(8, "[2001:db8::%x]:1"); refused != 5 {
			t.Errorf("%d of 8 of one network refused, want 5: it has a quarter of what is free", refused)
		}
		for _, other := range []string{"192.0.2.11:%d", "192.0.2.12:%d", "192.0.2.13:%d"} {
			hang(8, other)
		}
		r.good("beside four that have all they may", "192.0.2.1:1")
		if refused := hang(7, "127.0.0.3:%d"); refused != 0 {
			t.Errorf("%d of a trusted proxy refused", refused)
		}
		if hang(1, "192.0.2.1:%d") != 1 {
			t.Error("beyond the bound in all, another is not refused")
		}
		close(r.goOn)
		synctest.Wait()
		r.good("afterwards", "[2001:db8::1]:1")
	})
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
