package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/proxy"
)

// A deadlineWriter breaks a body off at the read deadline, as net/http does.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	body  *io.PipeWriter
	timer *time.Timer
}

// SetReadDeadline is for [http.ResponseController].
func (w *deadlineWriter) SetReadDeadline(t time.Time) error {
	if w.timer != nil {
		w.timer.Stop()
	}
	if !t.IsZero() {
		w.timer = time.AfterFunc(time.Until(t), func() { _ = w.body.CloseWithError(os.ErrDeadlineExceeded) })
	}
	return nil
}

// A room sends requests through a handler. Its upstream answers at once, except to /slow and
// to /work, whose body it reads first.
type room struct {
	t        *testing.T
	h        http.Handler
	goOn     chan struct{}
	behind   atomic.Int64
	statuses [600]atomic.Int64
}

// newRoom returns a room. It must run in a bubble of package synctest.
func newRoom(t *testing.T, rules string, o proxy.Options) *room {
	r := &room{t: t, goOn: make(chan struct{})}
	o.Transport = roundTrip(func(q *http.Request) (*http.Response, error) {
		if q.URL.Path == "/slow" {
			<-r.goOn
		}
		_, err := io.Copy(io.Discard, q.Body)
		if r.behind.Add(1); q.URL.Path == "/work" {
			<-r.goOn
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, err
	})
	r.h = handler(t, yaml(t, rules), o)
	return r
}

// post sends a request from an address, and returns the writer of its body.
func (r *room) post(address, path string, header ...string) *io.PipeWriter {
	body, w := io.Pipe()
	go func() {
		q := httptest.NewRequest(http.MethodPost, path, body)
		q.RemoteAddr = address
		for i := 0; i < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		if q.Header.Get("Content-Type") == "application/grpc" {
			q.ProtoMajor = 2
		}
		answer := &deadlineWriter{ResponseRecorder: httptest.NewRecorder(), body: w}
		r.h.ServeHTTP(answer, q)
		_ = body.Close() // as net/http does: who writes it goes on
		status := answer.Code
		if answer.Header().Get("Grpc-Status") != "" {
			status = http.StatusRequestTimeout
		}
		r.statuses[status].Add(1)
	}()
	return w
}

// good sends a short body and wants it to be answered at once.
func (r *room) good(what, address string) {
	r.t.Helper()
	before := r.statuses[http.StatusOK].Load()
	w := r.post(address, "/")
	_, _ = io.WriteString(w, `{"model":"m"}`) // of a body that is refused nobody reads
	_ = w.Close()
	if synctest.Wait(); r.statuses[http.StatusOK].Load() != before+1 {
		r.t.Errorf("%s: another client is not answered", what)
	}
}

func (r *room) want(status int, n int64) {
	r.t.Helper()
	if synctest.Wait(); r.statuses[status].Load() != n {
		r.t.Errorf("%d answers of %d, want %d", r.statuses[status].Load(), status, n)
	}
}

// TestBodiesByWhatComes: of a body that rules read, the bytes that have come count. It must end within
// ten seconds, also in a gRPC call. However many such bodies come, other requests are answered.
func TestBodiesByWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, "rules: [{name: a, key: [body./model], limits: 100000/s}]", proxy.Options{})
		for i := range 264 {
			switch i % 3 {
			case 0:
				r.post(fmt.Sprintf("192.0.2.%d:1", i%4), "/", "Content-Type", "application/grpc")
			default:
				w := r.post(fmt.Sprintf("192.0.2.%d:1", i%4), "/")
				go func() { // faster than the least rate
					for err := error(nil); err == nil; time.Sleep(time.Second) {
						_, err = w.Write(make([]byte, 600))
					}
				}()
			}
		}
		r.good("beside slow bodies", "198.51.100.1:1")
		time.Sleep(9 * time.Second)
		r.want(http.StatusRequestTimeout, 0)
		time.Sleep(2 * time.Second)
		r.want(http.StatusRequestTimeout, 264)
		time.Sleep(time.Second) // who sends notices
	})
}

// TestBodiesOfOneAddress: before a decision, the bodies of one address hold a small part of the room,
// those of a /48 of IPv6 twice as much. Afterwards the room is free again.
func TestBodiesOfOneAddress(t *testing.T) {
	const each, room = 1<<20 - 1, 256 << 20
	for _, c := range []struct {
		address string
		most    int
	}{{"192.0.2.1:1", room / 17}, {"[2001:db8:0:%x::1]:1", 2 * room / 18}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoom(t, "rules: [{name: a, key: [body./model], limits: 100000/s}]", proxy.Options{})
			for range 2 {
				var open []*io.PipeWriter
				before := r.statuses[http.StatusServiceUnavailable].Load()
				for i := range 64 {
					address := c.address
					if strings.Contains(address, "%") {
						address = fmt.Sprintf(address, i)
					}
					w := r.post(address, "/")
					_, _ = w.Write([]byte(strings.Repeat(" ", each)))
					open = append(open, w)
				}
				synctest.Wait() // the last piece of a body may have come, and have found no room
				refused := r.statuses[http.StatusServiceUnavailable].Load() - before
				if held := (64 - int(refused)) * each; held < c.most-2*each || held > c.most+2*each {
					t.Errorf("%s: bodies of %d bytes are held, want %d", c.address, held, c.most)
				}
				r.good("beside large bodies", "198.51.100.1:1")
				for _, w := range open {
					_ = w.CloseWithError(io.ErrUnexpectedEOF)
				}
				synctest.Wait()
			}
		})
	}
}

// TestLineBesideOthers: a client that fills the line of a customer, through a trusted proxy or not, is
// refused beyond a part of the requests that may wait, so that other clients have room.
func TestLineBesideOthers(t *testing.T) {
	const rules = "rules: [{name: a, match: {path: /slow}, key: [header.x-customer], limits: 1 in flight, wait: 1h}, {name: b, key: [body./model], limits: 100000/s}]"
	trusted := httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}
	for _, peer := range []string{"192.0.2.1:1", "10.0.0.1:1"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoom(t, rules, proxy.Options{Client: trusted})
			const sent, most = 3000, 2000 // a quarter of the 8,000 that are free then
			for i := range sent + 4 {     // four of which are behind
				w := r.post(peer, "/slow", "X-Forwarded-For", "192.0.2.1", "X-Customer", strconv.Itoa(i%4))
				go func() {
					_, _ = io.WriteString(w, `{"model":"m"}`) // of a body that is refused nobody reads
					_ = w.Close()
				}()
				synctest.Wait()
			}
			r.want(http.StatusServiceUnavailable, sent-most)
			r.good("beside a line", "198.51.100.1:1")
			close(r.goOn)
			r.want(http.StatusOK, most+4+1)
		})
	}
}

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, o *observe.Observer, name string) float64 {
	t.Helper()
	families, err := o.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no metric ", name)
	return 0
}
