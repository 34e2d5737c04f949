package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
)

// fake is a server behind a RoundTripper: each request is answered by the next
// of its answers, "status" and headers, and the last again and again.
type fake struct {
	mu      sync.Mutex
	answers []string
	began   time.Time
	log     []string // when each request came, with its method and body
	took    time.Duration
	bodies  atomic.Int64 // bodies that are not closed yet
	handler func(*http.Request) string
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	f.mu.Lock()
	f.log = append(f.log, strings.TrimSpace(fmt.Sprint(time.Since(f.began), " ", r.Method, " ", string(body))))
	answer := ""
	if len(f.answers) > 0 {
		answer = f.answers[0]
	}
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	if f.handler != nil {
		answer = f.handler(r)
	}
	f.mu.Unlock()
	time.Sleep(f.took)
	if answer == "" {
		return nil, errors.New("connection refused")
	}
	resp := &http.Response{StatusCode: 200, Header: make(http.Header), Request: r}
	for i, line := range strings.Split(answer, "\n") {
		if i == 0 {
			fmt.Sscan(line, &resp.StatusCode)
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		resp.Header.Add(name, value)
	}
	f.bodies.Add(1)
	resp.Body = &fakeBody{Reader: strings.NewReader("body"), open: &f.bodies}
	return resp, nil
}

type fakeBody struct {
	io.Reader
	once sync.Once
	open *atomic.Int64
}

func (b *fakeBody) Close() error {
	b.once.Do(func() { b.open.Add(-1) })
	return nil
}

// send makes a request and returns its status, or its error.
func send(t *testing.T, tr *httplimit.Transport, ctx context.Context, method, body string, headers ...string) (int, error) {
	t.Helper()
	return sendTo(t, tr, ctx, method, "http://api.test/v1", body, headers...)
}

func sendTo(t *testing.T, tr *httplimit.Transport, ctx context.Context, method, url, body string, headers ...string) (int, error) {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	if text, plain := strings.CutPrefix(body, "plain "); plain { // it cannot be read again
		r = io.MultiReader(strings.NewReader(text))
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	before := req.Clone(ctx)
	resp, err := tr.RoundTrip(req)
	if fmt.Sprint(before.Header, before.URL) != fmt.Sprint(req.Header, req.URL) {
		t.Error("the request was changed")
	}
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// TestTransportPauses plays a few requests one after another and says when
// each must reach the server.
func TestTransportPauses(t *testing.T) {
	for name, test := range map[string]struct {
		answers []string
		sends   int
		want    []string
	}{
		"no word":          {[]string{"200"}, 3, []string{"0s", "0s", "0s"}},
		"draft 11":         {[]string{"200\nRateLimit: \"a\";r=0;t=20", "200"}, 3, []string{"0s", "20s", "20s"}},
		"draft 11, some":   {[]string{"200\nRateLimit: \"a\";r=1;t=20", "200\nRateLimit: \"a\";r=0;t=15", "200"}, 3, []string{"0s", "0s", "15s"}},
		"the tightest":     {[]string{"200\nRateLimit: \"a\";r=5;t=90, \"b\";r=0;t=20", "200"}, 2, []string{"0s", "20s"}},
		"two lines":        {[]string{"200\nRateLimit: \"a\";r=5;t=90\nRateLimit: \"b\";r=0;t=20", "200"}, 2, []string{"0s", "20s"}},
		"no t":             {[]string{"200\nRateLimit: \"a\";r=0", "200"}, 2, []string{"0s", "0s"}},
		"malformed":        {[]string{"200\nRateLimit: \"a;r=0;t=20", "200"}, 2, []string{"0s", "0s"}},
		"the draft next":   {[]string{"200\nRateLimit: \"a\";a=0;w=20;c=1", "200"}, 2, []string{"0s", "20s"}},
		"draft 07":         {[]string{"200\nRateLimit: limit=10, remaining=0, reset=7", "200"}, 2, []string{"0s", "7s"}},
		"draft 07, more":   {[]string{"200\nRateLimit: limit=10;w=1, policy=\"a, remaining=9\", remaining=0, reset=7", "200"}, 2, []string{"0s", "7s"}},
		"draft 06":         {[]string{"200\nRateLimit-Limit: 10\nRateLimit-Remaining: 0\nRateLimit-Reset: 7", "200"}, 2, []string{"0s", "7s"}},
		"draft 03":         {[]string{"200\nRateLimit-Limit: 10, 10;w=1\nRateLimit-Remaining: 0\nRateLimit-Reset: 7", "200"}, 2, []string{"0s", "7s"}},
		"X, epoch":         {[]string{"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 946684830", "200"}, 2, []string{"0s", "30s"}},
		"X, milliseconds":  {[]string{"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 946684830500", "200"}, 2, []string{"0s", "30.5s"}},
		"X, fraction":      {[]string{"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 946684829.25", "200"}, 2, []string{"0s", "30s"}},
		"X, ms of today":   {[]string{"200\nDate: Sat, 21 Nov 2026 06:00:00 GMT\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795240830500", "200"}, 2, []string{"0s", "30.5s"}},
		"X, by its clock":  {[]string{"200\nDate: Sat, 01 Jan 2000 01:00:00 GMT\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 946688430", "200"}, 2, []string{"0s", "30s"}},
		"X, delta":         {[]string{"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", "200"}, 2, []string{"0s", "30s"}},
		"X, years ahead":   {[]string{"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1000000001", "200"}, 2, []string{"0s", "1h0m0s"}},
		"X, past":          {[]string{"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 900000001", "200"}, 2, []string{"0s", "0s"}},
		"X, date":          {[]string{"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sat, 01 Jan 2000 00:00:05 GMT", "200"}, 2, []string{"0s", "5s"}},
		"X, two servers":   {[]string{"200\nX-RateLimit-Remaining: 5\nX-RateLimit-Reset: 90\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 20", "200"}, 2, []string{"0s", "20s"}},
		"X-Rate":           {[]string{"200\nX-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 946684830", "200"}, 2, []string{"0s", "30s"}},
		"OpenAI":           {[]string{"200\nX-RateLimit-Remaining-Requests: 0\nX-RateLimit-Reset-Requests: 6m0s\nX-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 12ms", "200"}, 2, []string{"0s", "6m0s"}},
		"Atlassian":        {[]string{"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2000-01-01T00:01Z", "200"}, 2, []string{"0s", "1m0s"}},
		"Anthropic":        {[]string{"200\nAnthropic-RateLimit-Requests-Remaining: 0\nAnthropic-RateLimit-Requests-Reset: 2000-01-01T00:00:09Z", "200"}, 2, []string{"0s", "9s"}},
		"cached":           {[]string{"200\nAge: 5\nRateLimit: \"a\";r=0;t=20", "200"}, 2, []string{"0s", "0s"}},
		"absurd":           {[]string{"200\nRateLimit: \"a\";r=0;t=999999999999999", "200"}, 2, []string{"0s", "1h0m0s"}},
		"429":              {[]string{"429\nRetry-After: 20", "200"}, 2, []string{"0s", "20s", "20s"}},
		"429, date":        {[]string{"429\nRetry-After: Sat, 01 Jan 2000 00:00:20 GMT", "200"}, 1, []string{"0s", "20s"}},
		"429, UTC":         {[]string{"429\nRetry-After: Sat, 01 Jan 2000 00:00:20 UTC", "200"}, 1, []string{"0s", "20s"}},
		"429, past date":   {[]string{"429\nRetry-After: Sat, 01 Jan 1999 00:00:20 GMT", "200"}, 1, []string{"0s", "0s"}},
		"429, fraction":    {[]string{"429\nRetry-After: 1.5", "200"}, 1, []string{"0s", "2s"}},
		"429, absurd":      {[]string{"429\nRetry-After: 99999999999999999999", "200"}, 1, []string{"0s", "1h0m0s"}},
		"429, and t":       {[]string{"429\nRetry-After: 20\nRateLimit: \"a\";r=0;t=10", "200"}, 1, []string{"0s", "20s"}},
		"429, t alone":     {[]string{"429\nRateLimit: \"a\";r=0;t=10", "200"}, 1, []string{"0s", "10s"}},
		"503":              {[]string{"503\nRetry-After: 20", "200"}, 2, []string{"0s", "20s", "20s"}},
		"503, no word":     {[]string{"503", "200"}, 2, []string{"0s", "0s"}},
		"403, Retry-After": {[]string{"403\nRetry-After: 20", "200"}, 2, []string{"0s", "20s"}},
		"301, Retry-After": {[]string{"301\nRetry-After: 20", "200"}, 2, []string{"0s", "0s"}},
		"no end":           {[]string{"429\nRetry-After: 1"}, 1, []string{"0s", "1s", "2s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answers: test.answers, began: time.Now()}
				tr := &httplimit.Transport{Base: f}
				for range test.sends {
					if _, err := send(t, tr, t.Context(), http.MethodGet, ""); err != nil {
						t.Fatal(err)
					}
				}
				var want []string
				for _, at := range test.want {
					want = append(want, at+" GET")
				}
				if fmt.Sprint(f.log) != fmt.Sprint(want) {
					t.Errorf("requests at %v, want %v", f.log, want)
				}
				if n := f.bodies.Load(); n != 0 {
					t.Errorf("%d bodies are open", n)
				}
			})
		})
	}
}

// TestTransportRetries: only requests that may be repeated are retried, and only those that were answered.
func TestTransportRetries(t *testing.T) {
	for _, test := range []struct {
		method, body string
		idempotent   bool
		want         string
		status       int
	}{
		{"GET", "", false, "[0s GET 1s GET]", 200},
		{"HEAD", "", false, "[0s HEAD 1s HEAD]", 200},
		{"DELETE", "", false, "[0s DELETE 1s DELETE]", 200},
		{"PUT", "text", false, "[0s PUT text 1s PUT text]", 200},
		{"PUT", "plain text", false, "[0s PUT text]", 429},
		{"POST", "text", false, "[0s POST text]", 429},
		{"POST", "", false, "[0s POST]", 429},
		{"PATCH", "text", false, "[0s PATCH text]", 429},
		{"POST", "text", true, "[0s POST text 1s POST text]", 200},
		{"POST", "plain text", true, "[0s POST text]", 429},
		{"GET", "no answer", false, "[0s GET no answer]", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{answers: []string{"429\nRetry-After: 1", "200"}, began: time.Now()}
			if test.status == 0 {
				f.answers = nil
			}
			var key []string
			if test.idempotent {
				key = []string{"Idempotency-Key", "k"}
			}
			status, err := send(t, &httplimit.Transport{Base: f}, t.Context(), test.method, test.body, key...)
			if refused := err != nil && err.Error() == "connection refused"; fmt.Sprint(f.log) != test.want || status != test.status || f.bodies.Load() != 0 || refused != (status == 0) {
				t.Errorf("%+v: %v, %d, %v, %d bodies open", test, f.log, status, err, f.bodies.Load())
			}
		})
	}
}

// TestTransportBackoff: after each further 429 without a time, the wait is longer.
func TestTransportBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: []string{"429"}, began: time.Now()}
		status, err := send(t, &httplimit.Transport{Base: f, MaxRetries: 4}, t.Context(), http.MethodGet, "")
		if status != 429 || err != nil || len(f.log) != 5 {
			t.Fatal(status, err, f.log)
		}
		if total := time.Since(f.began); total < 15*time.Second || total > 23*time.Second { // 1 + 2 + 4 + 8, and up to half more
			t.Errorf("backed off for %v in all", total)
		}
	})
}

// TestTransportDeadline: a request that would have to wait beyond its deadline fails at once,
// and is not sent.
func TestTransportDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: []string{"429\nRetry-After: 20", "200"}, began: time.Now()}
		tr := &httplimit.Transport{Base: f}
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if status, err := send(t, tr, short, http.MethodGet, ""); status != 429 || err != nil {
			t.Errorf("the 429 that there is no time to wait for: %d, %v", status, err)
		}
		_, err := send(t, tr, short, http.MethodPost, "body")
		var limited *httplimit.LimitedError
		if !errors.As(err, &limited) || !errors.Is(err, context.DeadlineExceeded) || !limited.Server ||
			limited.RetryAfter != stint.Wait(20*time.Second) || limited.Key != "api.test" || !limited.Timeout() {
			t.Errorf("%v", err)
		}
		if time.Since(f.began) != 0 || len(f.log) != 1 {
			t.Errorf("after %v: %v", time.Since(f.began), f.log)
		}
		cancelled, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, err := send(t, tr, cancelled, http.MethodGet, ""); !errors.Is(err, context.Canceled) || time.Since(f.began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(f.began))
		}
		if n := f.bodies.Load(); n != 0 {
			t.Errorf("%d bodies are open", n)
		}
	})
}

// TestTransportOwn: requests keep to Limiter.
func TestTransportOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: []string{"200"}, began: time.Now()}
		tr := &httplimit.Transport{Base: f, Limiter: limiter(t, nil, "1/s burst 2"), Cost: func(r *http.Request) int64 {
			if r.Method == http.MethodPut {
				return 3
			}
			return 1
		}}
		for range 4 {
			send(t, tr, t.Context(), http.MethodGet, "")
		}
		if want := "[0s GET 0s GET 1s GET 2s GET]"; fmt.Sprint(f.log) != want {
			t.Errorf("%v, want %v", f.log, want)
		}
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := send(t, tr, short, http.MethodGet, "")
		var limited *httplimit.LimitedError
		var wait *stint.WaitError
		if !errors.As(err, &limited) || !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) ||
			limited.Server || limited.RetryAfter != stint.Wait(time.Second) {
			t.Errorf("%v", err)
		}
		_, err = send(t, tr, t.Context(), http.MethodPut, "x")
		if !errors.As(err, &limited) || errors.Is(err, context.DeadlineExceeded) || limited.RetryAfter != stint.Never || limited.Timeout() {
			t.Errorf("a cost above the limit: %v", err)
		}
	})
}

// TestTransportNotChargedTwice: if the server asks for a pause while requests wait under
// Limiter, the units they were charged are given back.
func TestTransportNotChargedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: []string{"200\nRateLimit: \"a\";r=0;t=60", "200"}, began: time.Now(), took: 1500 * time.Millisecond}
		tr := &httplimit.Transport{Base: f, Limiter: limiter(t, nil, "1/s", "4/1h fixed_window")}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { send(t, tr, t.Context(), http.MethodGet, "") })
		}
		all.Wait()
		if want := "[0s GET 1s GET 1m1.5s GET 1m2.5s GET]"; fmt.Sprint(f.log) != want {
			t.Errorf("%v, want %v", f.log, want)
		}
	})
}

// TestTransportNeverOverspends sends from many goroutines to a server that allows 20 a minute
// and says what remains: after its first answer it never has to deny, and each minute is used
// up.
func TestTransportNeverOverspends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, total, workers = 20, 100, 7
		f := &fake{began: time.Now(), took: 10 * time.Millisecond}
		window, used, denied := time.Duration(-1), 0, 0
		f.handler = func(*http.Request) string {
			now := time.Since(f.began)
			if w := now / time.Minute; w != window {
				window, used = w, 0
			}
			left := time.Minute - now%time.Minute
			reset := int64((left + time.Second - 1) / time.Second)
			if used++; used > quota {
				denied++
				return fmt.Sprintf("429\nRetry-After: %d\nRateLimit: \"a\";r=0;t=%d", reset, reset)
			}
			return fmt.Sprintf("200\nRateLimit: \"a\";r=%d;t=%d", quota-used, reset)
		}
		tr := &httplimit.Transport{Base: f, MaxRetries: -1}
		var all sync.WaitGroup
		var next atomic.Int64
		for range workers {
			all.Go(func() {
				for next.Add(1) <= total {
					if status, err := send(t, tr, t.Context(), http.MethodGet, ""); status != 200 {
						t.Error(status, err)
					}
				}
			})
		}
		all.Wait()
		if denied != 0 {
			t.Errorf("%d requests had to be denied", denied)
		}
		if took := time.Since(f.began); took > 5*time.Minute {
			t.Errorf("%d requests at %d a minute took %v", total, quota, took)
		}
	})
}

// TestTransportKeys: requests with different keys, such as hosts, do not affect each other.
func TestTransportKeys(t *testing.T) {
	for _, c := range []struct {
		key  httplimit.Key
		to   []string // a host, or an account at one
		want string
	}{
		{nil, []string{"a.test", "b.test", "a.test:8080", "A.TEST"}, "[0s GET 0s GET 0s GET 1m0s GET]"},
		{httplimit.HeaderKey("X-Account"), []string{"c.test 1", "c.test 2", "d.test 1"}, "[0s GET 0s GET 1m0s GET]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{answers: []string{"200\nRateLimit: \"a\";r=0;t=60"}, began: time.Now()}
			tr := &httplimit.Transport{Base: f, Key: c.key}
			for _, to := range c.to {
				host, account, _ := strings.Cut(to, " ")
				if _, err := sendTo(t, tr, t.Context(), http.MethodGet, "http://"+host, "", "X-Account", account); err != nil {
					t.Fatal(err)
				}
			}
			if fmt.Sprint(f.log) != c.want {
				t.Errorf("%v, want %v", f.log, c.want)
			}
		})
	}
}

// TestTransportServer uses a real server, which has to deny: answers that are retried leave their
// connection for further use.
func TestTransportServer(t *testing.T) {
	var denied, conns atomic.Int64
	server := httptest.NewUnstartedServer(guard(t, limiter(t, nil, "5/s"), httplimit.Options{
		OnDecision: func(_ *http.Request, o httplimit.Outcome) {
			if !o.Decision.Allowed {
				denied.Add(1)
			}
		},
	})(status))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := &http.Client{Transport: &httplimit.Transport{Base: stripped{server.Client().Transport.(*http.Transport)}}}
	for range 7 {
		resp, err := client.Get(server.URL + "/200")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Error(resp.StatusCode)
		}
	}
	if denied.Load() == 0 || conns.Load() != 1 {
		t.Errorf("%d denied, %d connections", denied.Load(), conns.Load())
	}
	client.CloseIdleConnections()
}

// stripped hides the fields that say what remains, so that a 429 comes.
type stripped struct{ *http.Transport }

func (s stripped) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Transport.RoundTrip(r)
	if err == nil {
		resp.Header.Del("RateLimit")
	}
	return resp, err
}
