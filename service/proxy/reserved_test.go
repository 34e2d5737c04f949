package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/proxy"
)

// ofOne is how many reservations one address may hold: a sixteenth of what it leaves.
const ofOne = memstore.DefaultReservations / 17

// counting returns rules that each reserve for a request until its status is known.
func counting(n int, more string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: r%d, key: [ip], limits: 100000/s ban 1h, count: {status: 401}%s}\n", i, more)
	}
	return b.String()
}

// asked sends a request through a handler, and returns its answer when it has ended. A panic ends an
// answer as in net/http.
func asked(ctx context.Context, h http.Handler, address, path string, header ...string) *httptest.ResponseRecorder {
	q := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	q.RemoteAddr = address
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	defer func() { _ = recover() }()
	h.ServeHTTP(rec, q)
	return rec
}

// TestReservationsOfOneAddress: many requests under many rules take no more than a part of the room for
// reservations, so that other clients have room. In shadow they pass beyond it.
func TestReservationsOfOneAddress(t *testing.T) {
	for _, c := range []struct {
		rules, more string
		fit         int64
	}{
		{"", "", ofOne / 50},
		{"", ", shadow: true", 130},
		{"  - {name: queue, key: [ip], limits: 10/s burst 1000 leaky_queue}\n", "", ofOne / 51},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoom(t, counting(50, c.more)+c.rules, proxy.Options{})
			h := r.h.(*proxy.Handler)
			const sent = 130
			for range sent {
				_ = r.post("192.0.2.1:1", "/slow").Close()
				synctest.Wait()
			}
			r.want(http.StatusServiceUnavailable, sent-c.fit)
			r.good("beside many reservations", "198.51.100.1:1")
			if n := h.Reserved(); n > ofOne || n < ofOne-51 {
				t.Errorf("%d reservations, want up to %d", n, ofOne)
			}
			close(r.goOn)
			time.Sleep(time.Minute) // some wait in the queue
			r.want(http.StatusOK, c.fit+1)
			if n := h.Reserved(); n != 0 || h.Shed() != sent-c.fit {
				t.Errorf("%d reservations at the end, %d refused", n, h.Shed())
			}
		})
	}
}

// streaming is a body of pieces of a byte each, which then waits.
type streaming struct {
	pieces int
	end    <-chan struct{}
}

func (s *streaming) Read(p []byte) (int, error) {
	if s.pieces--; s.pieces < 0 {
		<-s.end
		return 0, io.EOF
	}
	return copy(p, "x"), nil
}

func (*streaming) Close() error { return nil }

// TestReservationsRaised: what a response reserves while it runs counts as well, as many as it has open.
// Beyond the part of its address, a response is cut.
func TestReservationsRaised(t *testing.T) {
	const pieces, most = 70, 64
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		h := handler(t, yaml(t, "rules: [{name: a, key: [ip], limits: 1000000/s, cost: {response: bytes, reserve: 1, cut: true}}]"), proxy.Options{
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: &streaming{pieces, end}, ContentLength: -1}, nil
			}),
		})
		var cut, whole, running atomic.Int64
		stream := func(address string) {
			go func() {
				running.Add(1)
				defer running.Add(-1)
				if rec := asked(t.Context(), h, address, "/"); rec != nil {
					whole.Add(1)
				} else {
					cut.Add(1)
				}
			}()
			synctest.Wait()
		}
		for n := range 3 {
			if stream("192.0.2.1:1"); h.Reserved() != (n+1)*most {
				t.Errorf("%d streams have %d reservations open", n+1, h.Reserved())
			}
		}
		for range 97 {
			stream("192.0.2.1:1")
		}
		if n := h.Reserved(); n > ofOne || n < ofOne-most || cut.Load() != 100-running.Load() || cut.Load() < 5 {
			t.Errorf("%d reservations, %d streams cut, %d running", n, cut.Load(), running.Load())
		}
		before, was := h.Reserved(), cut.Load()
		if stream("198.51.100.1:1"); h.Reserved() != before+most || cut.Load() != was {
			t.Errorf("a stream of another address has %d reservations", h.Reserved()-before)
		}
		close(end)
		if synctest.Wait(); h.Reserved() != 0 || whole.Load() != 101-was {
			t.Errorf("%d reservations at the end; %d streams whole", h.Reserved(), whole.Load())
		}
	})
}

// TestReservationsGivenBack: however a request ends, its reservations are counted until then, and not
// longer.
func TestReservationsGivenBack(t *testing.T) {
	rules := counting(3, "") + "  - {name: f, key: [], limits: [50 in flight], finish: 1h}\n" +
		"  - {name: b, key: [], limits: 100000/s, cost: {response: bytes, reserve: 1, cut: true}}\n"
	for name, c := range map[string]struct {
		answer func() (*http.Response, error)
		leaves bool
		queued bool // it has a place in a queue alone
	}{
		"an answer": {answer: func() (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("abc"))}, nil
		}},
		"in a queue": {queued: true, answer: func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }},
		"no answer":  {answer: func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }},
		"a panic":    {answer: func() (*http.Response, error) { panic(http.ErrAbortHandler) }},
		"a broken body": {answer: func() (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(io.MultiReader(strings.NewReader("abc"), errReader{}))}, nil
		}},
		"the client leaves": {leaves: true, answer: func() (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("abc"))}, nil
		}},
		"a change of protocol that fails": {answer: func() (*http.Response, error) {
			return &http.Response{StatusCode: 101, Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, Body: io.NopCloser(bytes.NewReader(nil))}, nil
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			rules, held := rules, 4
			if c.queued {
				rules, held = "rules: [{name: queue, key: [], limits: 1/s burst 9 leaky_queue}]", 1
			}
			goOn, begun := make(chan struct{}), make(chan struct{})
			h := handler(t, yaml(t, rules), proxy.Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				close(begun)
				<-goOn
				return c.answer()
			})})
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				asked(ctx, h, "192.0.2.1:1", "/", "Connection", "Upgrade", "Upgrade", "websocket")
			}()
			<-begun
			if c.leaves {
				leave()
				time.Sleep(time.Minute) // its request goes on
			}
			if synctest.Wait(); h.Reserved() != held {
				t.Errorf("%s: %d reservations while it runs", name, h.Reserved())
			}
			close(goOn)
			<-ended
			if leave(); h.Reserved() != 0 {
				t.Errorf("%s: %d reservations at its end", name, h.Reserved())
			}
		})
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestReservationsUpgraded: a connection that has changed its protocol passes what is sent, says nothing of
// its cost, and holds what its body settles, but nothing that its status has.
func TestReservationsUpgraded(t *testing.T) {
	rules := counting(3, "") + strings.TrimPrefix(usageRules, "\nrules:\n")
	f := start(t, upstreamOf(t, echo), time.Second, yaml(t, rules), httplimit.ClientIP{})
	conn, r, _ := f.upgrade(t)
	if n := f.Reserved(); n != 1 {
		t.Errorf("%d reservations", n)
	}
	_, _ = io.WriteString(conn, "{\"usage\":{\"total_tokens\":7}}\n")
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "{") {
		t.Errorf("read %q (%v)", line, err)
	}
	_ = conn.Close() // this is the point
	await.Until(t, "nothing is reserved", func() bool { return f.Reserved() == 0 })
	settled(t, f, "", 100)
}
