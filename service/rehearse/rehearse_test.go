package rehearse_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/rehearse"
)

func parse(t testing.TB, text string) *policy.Rules {
	t.Helper()
	return made.Rules(t, text)
}

// live returns a policy whose requests are recorded.
func live(t testing.TB, document string, o rehearse.RecorderOptions) (*policy.Policy, *rehearse.Recorder) {
	t.Helper()
	recorder := rehearse.NewRecorder(o)
	p := made.Policy(t, memstore.New(memstore.Options{}), parse(t, document), policy.Options{OnDecision: recorder.Decided})
	return p, recorder
}

// decide asks n times of an address, at /login.
func decide(t testing.TB, p *policy.Policy, ip string, n int) {
	t.Helper()
	var r policy.Result
	for range n {
		if err := p.Decide(t.Context(), policy.Map{"path": "/login", "ip": ip}, 1, &r); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	five = `{"rules": [{"name": "login", "match": {"path": "/login"}, "key": ["ip"], "limits": ["5 per minute sliding_log"]}]}`
	two  = `{"rules": [{"name": "login", "match": {"path": "/login"}, "key": ["ip"], "limits": ["2 per minute sliding_log"]}]}`
)

// TestCounts is worked out by hand: under five a minute, three clients send 7, 3
// and 1 at once; under two a minute 5, 1 and none are denied.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, recorder := live(t, five, rehearse.RecorderOptions{})
		for ip, n := range map[string]int{"192.0.2.7": 7, "192.0.2.3": 3, "192.0.2.1": 1} {
			decide(t, p, ip, n)
		}
		o := rehearse.Options{Live: p, After: parse(t, two), Recording: recorder.Recording(time.Now()), Fresh: true, Names: true}
		report, err := rehearse.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(report.Requests, report.RecordedDenied, report.Denied, report.KeysDenied, report.NewlyDenied, report.NewlyPassed, report.KeysNewlyDenied, report.KeysNewlyPassed)
		if want := "11 2 {2 6} {1 2} 4 0 1 0"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if k := report.Denials; len(k) != 2 || k[0].Key != "192.0.2.7" || k[0].NewlyDenied != 3 || k[0].Denied != (rehearse.Compare{Before: 2, After: 5}) || k[1].Key != "192.0.2.3" || k[1].NewlyDenied != 1 {
			t.Errorf("%+v", k)
		}
		o.Before, o.After, o.Names = o.After, o.Live.Rules(), false // the other way around
		if report, err = rehearse.Run(t.Context(), o); err != nil || report.NewlyPassed != 4 || report.NewlyDenied != 0 || report.KeysNewlyPassed != 1 || len(report.Passes) != 2 {
			t.Errorf("%+v, %v", report, err)
		}
		for _, k := range report.Passes {
			if k.Key != "" || len(k.KeyHash) != 16 {
				t.Errorf("%+v without names", k)
			}
		}
	})
}

// TestShareOfMatched has requests that no rule matches dilute no share.
func TestShareOfMatched(t *testing.T) {
	p, recorder := live(t, five, rehearse.RecorderOptions{})
	decide(t, p, "192.0.2.7", 4)
	for range 996 {
		if err := p.Decide(t.Context(), policy.Map{"path": "/", "ip": "192.0.2.7"}, 1, new(policy.Result)); err != nil {
			t.Fatal(err)
		}
	}
	report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: parse(t, two), Recording: recorder.Recording(time.Now()), Fresh: true})
	if err != nil || report.NewlyDeniedShare != 0.5 || report.Matched != 4 || report.Requests != 1000 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestPushedOut says of a recording whose past a flood has pushed out that it is no answer.
func TestPushedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for pause, unsure := range map[time.Duration]bool{time.Millisecond: true, 10 * time.Millisecond: false} {
			p, recorder := live(t, five, rehearse.RecorderOptions{Requests: 15_000})
			for range 25_000 {
				time.Sleep(pause)
				decide(t, p, "192.0.2.7", 1)
			}
			report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: parse(t, two), Recording: recorder.Recording(time.Now())})
			if err != nil || len(report.Unsure) > 0 != unsure {
				t.Errorf("one each %v: %v, %v", pause, err, report.Unsure)
			}
		}
	})
}

// TestUnreadBodies: recording reads no body that the rules have not read, and rules that look into one
// are not rehearsed.
func TestUnreadBodies(t *testing.T) {
	file := func(path string) string {
		return fmt.Sprintf(`{"rules": [{"name": "mail", "match": {"path": %q}, "key": ["body./mail"], "limits": ["5 per minute"]}]}`, path)
	}
	p, recorder := live(t, file("/login"), rehearse.RecorderOptions{})
	guard, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	read := make(map[string]bool)
	for _, path := range []string{"/login", "/upload"} {
		r := httptest.NewRequest(http.MethodPost, path, io.TeeReader(strings.NewReader(`{"mail": "ann@example.org"}`), writerFunc(func() { read[path] = true })))
		r.ContentLength = 27
		guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), r)
	}
	if !read["/login"] || read["/upload"] {
		t.Errorf("read: %v", read)
	}
	for path, unsure := range map[string]bool{"/login": false, "/log*": false, "/*": true} {
		report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: parse(t, file(path)), Recording: recorder.Recording(time.Now()), Fresh: true})
		if err != nil || slices.ContainsFunc(report.Unsure, func(text string) bool { return strings.Contains(text, "bodies of 1 request") }) != unsure {
			t.Errorf("%s: %v, %v", path, err, report.Unsure)
		}
	}
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

// sending is a request with a body of so many bytes.
type sending struct {
	policy.Map
	bytes int64
}

func (s sending) BodyLength() int64 { return s.bytes }

// TestAsLive holds rehearsals to what happened: under the rules of then, exactly
// the requests are denied that were; under others, those that the others deny on
// the same requests at the same times.
func TestAsLive(t *testing.T) {
	pool := []string{"5/m", "3 per 10s sliding_log", "2/s burst 4", "1/s burst 2 leaky_queue", "4 per 7s fixed_window", "6 per 30s sliding_counter", "2 per day in Europe/Paris"}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			file := func() string {
				limit := func() string { return pool[random.IntN(len(pool))] }
				return fmt.Sprintf(`{"rules": [
					{"name": "login", "match": {"path": "/login"}, "key": ["ip"], "limits": [%q]},
					{"name": "site", "key": ["ip"], "limits": [%q], "shadow": %v},
					{"name": "cost", "match": {"path": "/[a]*"}, "key": ["header.k"], "limits": [%q], "on_missing": "skip", "cost": {"attribute": "body./n", "sent": 100, "max": 3}}]}`,
					limit(), limit(), random.IntN(3) == 0, limit())
			}
			was, other := file(), file()
			p, recorder := live(t, was, rehearse.RecorderOptions{})
			q, _ := live(t, other, rehearse.RecorderOptions{})
			var r policy.Result
			var denied, otherDenied, newly, passed int64
			for range 500 {
				time.Sleep(time.Duration(random.IntN(3e9)))
				attrs := policy.Map{"path": []string{"/login", "/a", "/b"}[random.IntN(3)], "ip": fmt.Sprintf("192.0.2.%d", random.IntN(5))}
				if random.IntN(2) == 0 {
					attrs["header.k"], attrs["body./n"] = fmt.Sprint(random.IntN(3)), "1"
				}
				asked := sending{attrs, 60 * random.Int64N(4)}
				if r.Costs = nil; random.IntN(4) == 0 {
					r.Costs = policy.Costs{"login": random.Int64N(3), "site": 2}
				}
				var ok [2]bool
				for i, one := range []*policy.Policy{p, q} {
					if err := one.Decide(t.Context(), asked, 1, &r); err != nil {
						t.Fatal(err)
					}
					ok[i] = r.Decision.Allowed
				}
				count := func(n *int64, yes bool) {
					if yes {
						*n++
					}
				}
				count(&denied, !ok[0])
				count(&otherDenied, !ok[1])
				count(&newly, ok[0] && !ok[1])
				count(&passed, !ok[0] && ok[1])
			}
			report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: parse(t, other), Recording: recorder.Recording(time.Now()), Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			if report.Requests < 500 { // some are older than 15 minutes: then it began from empty, and says so
				if !strings.Contains(report.State, "empty") || report.WarmUpRequests == 0 {
					t.Errorf("seed %d: %+v", seed, report)
				}
				return
			}
			if report.RecordedDenied != denied || report.Denied.Before != denied || report.Denied.After != otherDenied || report.NewlyDenied != newly || report.NewlyPassed != passed {
				t.Errorf("seed %d: %+v, want %d %d, %d, %d\n%s\n%s", seed, report, denied, otherDenied, newly, passed, was, other)
			}
			var rules rehearse.Compare
			for _, one := range report.Rules {
				rules.Before, rules.After = rules.Before+one.Denied.Before, rules.After+one.Denied.After
			}
			sum := func(counts []int64) (n int64) {
				for _, c := range counts {
					n += c
				}
				return n
			}
			if rules != report.Denied || sum(report.OverTime.Requests) != 500 || sum(report.OverTime.NewlyDenied) != newly || sum(report.OverTime.Before) != denied {
				t.Errorf("seed %d: sums differ: %+v", seed, report)
			}
		})
	}
}

// TestWarmUp leaves out the first requests where the store's state then is not
// known, and says what it cannot know.
func TestWarmUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, recorder := live(t, five, rehearse.RecorderOptions{})
		for range 400 {
			decide(t, p, "192.0.2.7", 1)
			time.Sleep(time.Second)
		}
		recording := recorder.Recording(time.Now())
		for _, test := range []struct {
			warm   time.Duration
			fresh  bool
			after  string
			counts int64
			notes  int
		}{
			{0, true, two, 400, 0}, {0, false, two, 340, 0}, {-1, false, two, 400, 1}, {100 * time.Second, false, two, 300, 0}, {time.Hour, false, two, 1, 0},
			{0, false, strings.Replace(two, "minute", "day", 1), 200, 2},
		} {
			report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: parse(t, test.after), Recording: recording, WarmUp: test.warm, Fresh: test.fresh})
			if err != nil || report.Requests != test.counts || report.WarmUpRequests != 400-test.counts || len(report.Notes) != test.notes || len(report.Unsure) != test.notes/2 {
				t.Errorf("%+v: %+v, %v", test, report, err)
			}
		}
		elsewhere := parse(t, strings.Replace(two, "/login", "/elsewhere", 1))
		report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: elsewhere, Recording: recording, Fresh: true})
		if err != nil || len(report.Unsure) != 1 || !strings.Contains(report.Unsure[0], "no request matched it") {
			t.Errorf("a rule that no request matched: %+v, %v", report, err)
		}
	})
}

// TestOverrides rehearses with what customers have of their own.
func TestOverrides(t *testing.T) {
	p, recorder := live(t, five, rehearse.RecorderOptions{})
	if err := p.SetOverride("login", "192.0.2.7", policy.Override{Unlimited: true}); err != nil {
		t.Fatal(err)
	}
	if err := p.SetOverride("login", "192.0.2.8", policy.Override{Limits: []stint.Limit{stint.PerHour(1)}}); err != nil {
		t.Fatal(err)
	}
	decide(t, p, "192.0.2.7", 5)
	decide(t, p, "192.0.2.8", 5)
	report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: parse(t, two), Recording: recorder.Recording(time.Now()), Fresh: true})
	if err != nil || report.Denied != (rehearse.Compare{Before: 4, After: 4}) || report.RecordedDenied != 4 {
		t.Errorf("%+v, %v", report, err)
	}
	if err := p.SetOverride("login", "192.0.2.9", policy.Override{Limits: []stint.Limit{stint.PerHour(2)}}); err != nil { // while a rehearsal goes by the same table
		t.Fatal(err)
	}
}

// TestMissing says what the recording does not have, and refuses nothing.
func TestMissing(t *testing.T) {
	p, recorder := live(t, five, rehearse.RecorderOptions{})
	if _, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: parse(t, two), Recording: recorder.Recording(time.Now())}); !errors.Is(err, rehearse.ErrEmpty) {
		t.Error(err)
	}
	decide(t, p, "192.0.2.1", 1)
	after := parse(t, `{"rules": [{"name": "a", "key": ["header.k"], "limits": ["1/s"], "on_missing": "deny"}]}`)
	report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: after, Recording: recorder.Recording(time.Now())})
	if err != nil || !slices.Equal(report.Missing, []string{"header.k"}) || report.NewlyDenied != 1 || len(report.Notes) == 0 {
		t.Errorf("%+v, %v", report, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := rehearse.Run(ctx, rehearse.Options{Live: p, After: after, Recording: recorder.Recording(time.Now())}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var b strings.Builder
	if err := report.Text(&b); err != nil || !strings.Contains(b.String(), "note: ") {
		t.Error(b.String(), err)
	}
}

// TestCheckpoint begins with what keys had used: limits that remember longer than
// the recording deny exactly what was denied, and other rules find what was used
// under those in force.
func TestCheckpoint(t *testing.T) {
	const daily = `{"rules": [{"name": "export", "key": ["ip"], "limits": ["200 per day"]}, {"name": "login", "match": {"path": "/login"}, "key": ["ip"], "limits": ["100 per hour sliding_log"]}]}`
	synctest.Test(t, func(t *testing.T) {
		recorder, store := rehearse.NewRecorder(rehearse.RecorderOptions{}), memstore.New(memstore.Options{})
		first := made.Policy(t, store, parse(t, strings.Replace(daily, "200 per day", "10 per minute", 1)), policy.Options{OnDecision: recorder.Decided})
		p, err := first.Reload(parse(t, daily)) // the store's names are those of the first
		if err != nil {
			t.Fatal(err)
		}
		var kept rehearse.Checkpoints
		ctx, stop := context.WithCancel(t.Context())
		go kept.Keep(ctx, store)
		defer stop()
		random := rand.New(rand.NewPCG(3, 4))
		for range 6000 {
			time.Sleep(time.Duration(random.IntN(1e9)))
			decide(t, p, fmt.Sprintf("192.0.2.%d", random.IntN(20)), 1)
		}
		recording := recorder.Recording(time.Now())
		began, _ := recording.Span()
		o := rehearse.Options{Live: p, After: parse(t, strings.Replace(daily, "200 per day", "1000 per day", 1)), Recording: recording, Checkpoint: kept.Since(began), Fresh: true}
		report, err := rehearse.Run(t.Context(), o)
		if err != nil || !strings.HasPrefix(report.State, "as it was at ") || len(report.Notes) != 0 || report.RecordedDenied == 0 || report.Denied.Before != report.RecordedDenied {
			t.Errorf("%+v, %v", report, err)
		}
		if report.Requests < 1000 || report.WarmUpRequests == 0 || report.Requests+report.WarmUpRequests > int64(recording.Len()) {
			t.Errorf("%d requests, %d left out", report.Requests, report.WarmUpRequests)
		}
		if o.Checkpoint = nil; true { // what the checkpoint is for
			if report, err = rehearse.Run(t.Context(), o); err != nil || report.Denied.Before >= report.RecordedDenied || len(report.Notes) == 0 {
				t.Errorf("from empty: %+v, %v", report, err)
			}
		}
	})
}
