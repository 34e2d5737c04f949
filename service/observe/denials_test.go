package observe_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/service/observe"
)

// lines is a log that a test reads: what was written, without the time.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// take returns the lines since the last call.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.buf.String())
	l.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (l *lines) want(t *testing.T, want ...string) {
	t.Helper()
	hash := regexp.MustCompile(`key_hash=[0-9a-f]{16}`)
	got := l.take()
	for i := range got {
		got[i] = hash.ReplaceAllString(got[i], "key_hash=HASH")
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// newStore returns a store on the bubble's clock.
func newStore() *memstore.Store {
	return memstore.New(memstore.Options{Now: func() int64 { return time.Now().UnixNano() }})
}

// TestRefused logs the first request of a period that is refused for a reason, and how many
// followed.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		o := observe.New(observe.Options{Log: log.logger()})
		for range 3 {
			o.Failed("auth", &policy.RequestError{Attribute: "path", Reason: "encoded slash or backslash"})
			o.Failed("http", fmt.Errorf("a name of a client: %w", policy.ErrRequest))
		}
		o.Failed("auth", context.Canceled)
		log.want(t,
			`level=INFO msg="request refused" interface=auth why="path: encoded slash or backslash"`,
			`level=INFO msg="request refused" interface=http why="what was asked is not valid"`)
		o.Close()
		log.want(t,
			`level=INFO msg="request refused again" interface=auth why="path: encoded slash or backslash" times=2 since=2000-01-01T00:00:00.000Z`,
			`level=INFO msg="request refused again" interface=http why="what was asked is not valid" times=2 since=2000-01-01T00:00:00.000Z`)
	})
}

// TestLog is the life of one key in the log: its first denial, sums of the
// others, and silence.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		p := newPolicy(t, newStore(), rulesFile)
		o := observe.New(observe.Options{Log: log.logger()})
		for range 2 {
			ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.7"})
		}
		log.want(t)
		time.Sleep(10 * time.Second)
		for range 5 {
			ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.7"})
		}
		log.want(t, `level=INFO msg=denied interface=http rule=strict key_hash=HASH limit=2/1h cost=1 retry_after=29m50s`)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		log.want(t, `level=INFO msg="denied again" interface=http rule=strict key_hash=HASH times=4 since=2000-01-01T00:00:10.000Z`)
		ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.7"})
		log.want(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		log.want(t, `level=INFO msg="denied again" interface=http rule=strict key_hash=HASH times=1 since=2000-01-01T00:01:00.000Z`)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		log.want(t)
		ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.7"})
		ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.7"})
		o.Close()
		log.want(t,
			`level=INFO msg=denied interface=http rule=strict key_hash=HASH limit=2/1h cost=1 retry_after=18m0s`,
			`level=INFO msg="denied again" interface=http rule=strict key_hash=HASH times=1 since=2000-01-01T00:12:00.000Z`)
		o.Close()
		log.want(t)
	})
}

// TestLogKinds has a line of each kind: shadow, a block, a missing key, a store
// that fails, a key in clear.
func TestLogKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		p := newPolicy(t, newStore(), rulesFile)
		o := observe.New(observe.Options{Log: log.logger(), LogKeys: true})
		defer o.Close()
		ask(o, p, policy.Map{"path": "/b"})
		ask(o, p, policy.Map{"path": "/c"})
		for range 2 {
			ask(o, p, policy.Map{"path": "/a", "ip": "192.0.2.7"})
		}
		log.want(t,
			`level=INFO msg=denied interface=http rule=banned limit=block`,
			`level=INFO msg=denied interface=http rule=keyed missing=header.x-api-key limit=missing`,
			`level=INFO msg=denied interface=http rule=shadowed key=192.0.2.7 shadow=true limit=1/1h cost=1 retry_after=1h0m0s`)
		for range 3 {
			o.Failed("auth", errBroken)
		}
		ask(o, newPolicy(t, broken{newStore(), errBroken}, rulesFile), policy.Map{"path": "/e", "ip": "192.0.2.8"})
		log.want(t, `level=ERROR msg="store failed" interface=auth error="store: no answer"`)
		time.Sleep(time.Minute)
		synctest.Wait()
		log.want(t, `level=ERROR msg="store failed again" cause="no answer" times=3 since=2000-01-01T00:00:00.000Z`)
		for range 2 {
			ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.9"})
		}
		log.want(t, `level=INFO msg="the store decides again" failed_last=2000-01-01T00:00:00.000Z`)
		for range 3 { // a summary of what is over is no new outage
			o.Failed("auth", errBroken)
		}
		time.Sleep(2 * time.Second)
		ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.10"})
		time.Sleep(58 * time.Second)
		synctest.Wait()
		ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.11"})
		log.want(t, `level=ERROR msg="store failed" interface=auth error="store: no answer"`,
			`level=INFO msg="the store decides again" failed_last=2000-01-01T00:01:00.000Z`,
			`level=ERROR msg="store failed again" cause="no answer" times=2 since=2000-01-01T00:01:00.000Z`)
		for range 3 { // what passes by itself does not hide what does not
			o.Failed("auth", errBroken)
			o.Failed("auth", fmt.Errorf("%w: credentials", redisstore.ErrConfiguration))
			o.Failed("auth", fmt.Errorf("%w: %w", redisstore.ErrNotExecuted, redisstore.ReplyError("OOM command not allowed")))
			o.Failed("auth", fmt.Errorf("%w: %w", redisstore.ErrNotExecuted, redisstore.ReplyError("READONLY You can't write")))
			ask(o, newPolicy(t, broken{newStore(), redisstore.ReplyError("WRONGTYPE Operation")}, rulesFile), policy.Map{"path": "/e", "ip": "192.0.2.8"})
		}
		log.want(t,
			`level=ERROR msg="store failed" interface=auth error="store: no answer"`,
			`level=ERROR msg="store failed" interface=auth error="redisstore: configuration: credentials"`,
			`level=ERROR msg="store failed" interface=auth error="redisstore: not executed: OOM command not allowed"`,
			`level=ERROR msg="store failed" interface=auth error="redisstore: not executed: READONLY You can't write"`,
			`level=ERROR msg="store failed" interface=http rules=strict error="WRONGTYPE Operation"`)
		time.Sleep(time.Minute)
		synctest.Wait()
		const since = " times=2 since=2000-01-01T00:02:00.000Z"
		log.want(t,
			`level=ERROR msg="store failed again" cause=OOM`+since, `level=ERROR msg="store failed again" cause=READONLY`+since,
			`level=ERROR msg="store failed again" cause=WRONGTYPE`+since, `level=ERROR msg="store failed again" cause=configuration`+since,
			`level=ERROR msg="store failed again" cause="no answer"`+since)
	})
}

// TestLogMissing tells a key that clients share, since an attribute is missing, from
// that of one client.
func TestLogMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		p := newPolicy(t, newStore(), rulesFile)
		o := observe.New(observe.Options{Log: log.logger()})
		defer o.Close()
		for _, test := range []struct{ ip, shared string }{{"203.0.113.7:4711", ""}, {"unknown", `missing="ip (none, or no address)" `}} {
			since := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
			for range 4 {
				ask(o, p, policy.Map{"path": "/e", "ip": test.ip})
			}
			log.want(t, `level=INFO msg=denied interface=http rule=strict key_hash=HASH `+test.shared+`limit=2/1h cost=1 retry_after=30m0s`)
			time.Sleep(time.Minute)
			synctest.Wait()
			log.want(t, `level=INFO msg="denied again" interface=http rule=strict key_hash=HASH `+test.shared+`times=1 since=`+since)
		}
	})
}

// TestLogFlood denies more keys than have room, some of them stubbornly: the
// lines of a period are bounded, and no denial is lost from their sums.
func TestLogFlood(t *testing.T) {
	const most, keys = 20, 3000
	synctest.Test(t, func(t *testing.T) {
		var log lines
		p := newPolicy(t, newStore(), `{"rules": [{"name": "none", "key": ["ip"], "limits": ["1/h"]}]}`)
		o := observe.New(observe.Options{Log: log.logger(), Lines: most})
		total := 0
		newcomers := 0
		for minute := range 5 {
			for i := range keys {
				ip := fmt.Sprintf("10.%d.%d.%d", minute, i/250, i%250)
				for range 3 {
					ask(o, p, policy.Map{"ip": ip})
				}
				ask(o, p, policy.Map{"ip": "192.0.2.7"}) // stubborn
				total += 3
			}
			if minute == 0 {
				total-- // the stubborn one's first
			}
			before := log.take()
			newcomers += len(before)
			if minute > 0 && len(before) == 0 {
				t.Errorf("minute %d: those denied before leave no room for others", minute)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			after := log.take()
			if n := len(before) + len(after); n > most+1 {
				t.Errorf("minute %d: %d lines, at most %d and one", minute, n, most)
			}
			total -= len(before) + sum(t, after)
			stubborn := keys
			if minute == 0 {
				stubborn -= 2 // one passed, one had its line
			}
			if !strings.Contains(after[0], fmt.Sprintf("times=%d ", stubborn)) {
				t.Errorf("minute %d: the first sum is not that of the stubborn key: %s", minute, after[0])
			}
		}
		time.Sleep(2 * time.Minute) // quiet
		synctest.Wait()
		total -= sum(t, log.take())
		for _, ip := range []string{"198.51.100.1", "198.51.100.2"} { // later, as at first: one line each, at once
			for range 2 {
				ask(o, p, policy.Map{"ip": ip})
			}
			log.want(t, `level=INFO msg=denied interface=http rule=none key_hash=HASH limit=1/1h cost=1 retry_after=1h0m0s`)
		}
		o.Close()
		if total -= sum(t, log.take()); total != 0 {
			t.Errorf("%d denials are in no line", total)
		}
		if newcomers == 0 {
			t.Error("no key had a line")
		}
	})
}

// sum adds up the times of lines.
func sum(t *testing.T, list []string) (n int) {
	t.Helper()
	for _, line := range list {
		_, rest, ok := strings.Cut(line, "times=")
		var times int
		if _, err := fmt.Sscan(rest, &times); !ok || err != nil {
			t.Fatalf("no times in %s", line)
		}
		n += times
	}
	return n
}

// TestAtOnce counts from many goroutines while rules come and go, metrics are
// read and periods end: under -race, and no decision may be lost.
func TestAtOnce(t *testing.T) {
	const workers, each = 8, 500
	var log lines
	p := newPolicy(t, memstore.New(memstore.Options{}), rulesFile)
	o := observe.New(observe.Options{Log: log.logger(), Period: time.Millisecond, Lines: 10})
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				ask(o, p, policy.Map{"path": "/e", "ip": fmt.Sprintf("10.0.%d.%d", w, i%40)})
				if i%50 == 0 {
					o.Rules([]string{"strict"})
					if _, err := o.Gather(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	o.Close()
	var got int
	for _, line := range series(scrape(t, o), "stint_decisions_total") {
		var n int
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if got != workers*each {
		t.Errorf("%d decisions counted, %d made", got, workers*each)
	}
}

// TestLogFloodOneRule floods one rule with keys: the first denials under others
// have their lines all the same.
func TestLogFloodOneRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		p := newPolicy(t, newStore(), `{"rules": [{"name": "flooded", "match": {"path": "/flooded"}, "key": ["ip"], "limits": ["1/h"]},
			{"name": "quiet", "match": {"path": "/quiet"}, "key": ["ip"], "limits": ["1/h"]}]}`)
		o := observe.New(observe.Options{Log: log.logger(), Lines: 40})
		for minute := range 4 {
			for i := range 1000 {
				for range 2 {
					ask(o, p, policy.Map{"path": "/flooded", "ip": fmt.Sprintf("10.%d.%d.%d", minute, i/250, i%250)})
				}
			}
			log.take()
			for range 2 {
				ask(o, p, policy.Map{"path": "/quiet", "ip": fmt.Sprintf("192.0.2.%d", minute)})
			}
			log.want(t, `level=INFO msg=denied interface=http rule=quiet key_hash=HASH limit=1/1h cost=1 retry_after=1h0m0s`)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		o.Close()
	})
}

// TestLogTrace denies requests of traces, and of what is none.
func TestLogTrace(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	for header, want := range map[string]string{
		"00-" + id + "-b7ad6b7169203331-01": id,
		"00-" + id:                          "",
		"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01": "",
		"": "",
		"00-" + strings.ToUpper(id) + "-b7ad6b7169203331-01": "",
		"00-" + id[1:] + "-b7ad6b7169203331-01":              "",
		"00-\nlevel=ERROR msg=forged-00000000000-1":          "",
		"00-" + strings.Repeat("é", 16) + "-1":               "",
	} {
		var log lines
		p := newPolicy(t, newStore(), rulesFile)
		o := observe.New(observe.Options{Log: log.logger()})
		var r policy.Result
		for range 3 {
			if err := p.Decide(t.Context(), policy.Map{"path": "/e", "ip": "192.0.2.7"}, 1, &r); err != nil {
				t.Fatal(err)
			}
			o.Decided("http", &r, observe.Request{Header: http.Header{"Traceparent": {header}}})
		}
		if said := strings.Join(log.take(), "\n"); strings.Contains(said, "trace_id") != (want != "") || !strings.Contains(said, want) || strings.Contains(said, "forged") {
			t.Errorf("%q: %s", header, said)
		}
		o.Close()
	}
}

// TestLogSample: a rule with a sample has a line for that part of its denials, each
// with its trace, up to a bound; the others are as they were.
func TestLogSample(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	synctest.Test(t, func(t *testing.T) {
		var log lines
		p := newPolicy(t, newStore(), `{"rules": [
			{"name": "all", "match": {"path": "/all"}, "key": ["ip"], "limits": ["1/d"]},
			{"name": "some", "match": {"path": "/some"}, "key": ["ip"], "limits": ["1/d"]},
			{"name": "none", "match": {"path": "/none"}, "key": ["ip"], "limits": ["1/d"]},
			{"name": "other", "match": {"path": "/other"}, "key": ["ip"], "limits": ["1/d"]}]}`)
		o := observe.New(observe.Options{Log: log.logger(), Sample: map[string]float64{"all": 1, "some": 0.1, "none": 0}})
		defer o.Close()
		deny := func(path string, n int) []string {
			t.Helper()
			var r policy.Result
			for range n {
				if err := p.Decide(t.Context(), policy.Map{"path": path, "ip": "192.0.2.7"}, 1, &r); err != nil {
					t.Fatal(err)
				}
				if !r.Decision.Allowed {
					o.Decided("http", &r, observe.Request{Header: http.Header{"Traceparent": {"00-" + id + "-b7ad6b7169203331-01"}}})
				}
			}
			return log.take()
		}
		each := deny("/all", 4)
		if len(each) != 3 || strings.Count(strings.Join(each, "\n"), "trace_id="+id+" sample=1") != 3 {
			t.Errorf("each denial: %q", each)
		}
		if none := deny("/none", 100); len(none) != 0 {
			t.Errorf("no denial: %q", none)
		}
		if other := deny("/other", 100); len(other) != 1 || strings.Contains(other[0], "sample") {
			t.Errorf("a rule without a sample: %q", other)
		}
		if some := deny("/some", 4001); len(some) < 200 || len(some) > 600 || !strings.Contains(some[0], "sample=0.1") {
			t.Errorf("%d lines of one denial in ten of 4,000", len(some))
		}
		if more := deny("/all", 5000); len(more) > 1000 {
			t.Errorf("%d lines in a minute", len(more))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if text := strings.Join(log.take(), "\n"); !strings.Contains(text, `msg="denied again"`) || !strings.Contains(text, `msg="denied others"`) {
			t.Errorf("the sums:\n%s", text)
		}
		if each := deny("/all", 2); len(each) != 2 {
			t.Errorf("in the next minute: %q", each)
		}
	})
}
