package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestListsUnknown has processes start that know one list of limits each: a key goes on
// with what it has used under the former ones, also in a process that was there before
// and has noticed the new one.
func TestListsUnknown(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	o := redisstore.Options{Prefix: "unknown", Now: func() int64 { return now }}
	before, started := open(t, server.URL(), o), open(t, server.URL(), o)
	minute := bound(t, before, "10/1m")
	take(t, minute, "key", 10)
	take(t, minute, "another", 1) // the first call loaded the script, after which the record is read once more
	hour := bound(t, started, "10/1h")
	if d := take(t, hour, "key", 1); d.Allowed {
		t.Errorf("10/1h starts afresh after 10/1m: %+v", d)
	}
	now += int64(6 * time.Minute)
	if d := take(t, hour, "key", 1); !d.Allowed { // one of ten is there again
		t.Errorf("six minutes later: %+v", d)
	}
	take(t, hour, "new", 5)
	if d := take(t, minute, "new", 6); d.Allowed || d.Remaining != 5 { // before it meets a state that names 10/1h
		t.Errorf("10/1m does not know 10/1h minutes after that was first asked: %+v", d)
	}
	if d := take(t, minute, "key", 10); d.Allowed {
		t.Errorf("10/1m does not count what 10/1h let pass: %+v", d)
	}
	back := open(t, server.URL(), o)
	if d := take(t, bound(t, back, "8/2h sliding_log, 20/1d"), "new", 4); d.Allowed || d.Remaining != 3 {
		t.Errorf("a third list has %d left after 5 of 8", d.Remaining)
	}
}

// TestListsUnknownModes does so on the server's clock, in each mode that asks the
// server, on one server and on a cluster.
func TestListsUnknownModes(t *testing.T) {
	for name, server := range map[string]string{"server": redistest.Start(t).URL(), "cluster": redistest.StartCluster(t, 3, 0).URL()} {
		for _, mode := range []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async} {
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				o := redisstore.Options{Prefix: "mode" + mode.String(), Timeout: time.Minute}
				before := bound(t, open(t, server, o), "1000/1h")
				for i := range 5 {
					take(t, before, fmt.Sprint("key ", i), 1000)
				}
				after := bound(t, open(t, server, o).Mode(mode), "1000/20h")
				for i := range 5 {
					passed := 0
					for range 2000 {
						if take(t, after, fmt.Sprint("key ", i), 1).Allowed {
							passed++
						}
					}
					if passed > 10 {
						t.Errorf("%d passed after the former limit was used up", passed)
					}
				}
			})
		}
	}
}

// TestListsRecord looks at the record: it holds 16 lists, those that count the longest,
// each until it counts nothing, and goes with the last of them.
func TestListsRecord(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	o := redisstore.Options{Prefix: "record", Now: func() int64 { return now }}
	c, key := client(t, server.Addr), redisstore.ListsKey("record", "api")
	has := func(want int64, when string) {
		t.Helper()
		if n, err := do(t, c, "HLEN", key).AsInt64(); err != nil || n != want {
			t.Errorf("%s the record holds %d lists, %v; want %d", when, n, err, want)
		}
	}
	s := open(t, server.URL(), o)
	for i := range 40 {
		take(t, bound(t, s, fmt.Sprintf("10/%dm", 60-i)), "key", 1)
		has(min(int64(i)+1, 16), fmt.Sprintf("after %d lists", i+1))
	}
	now += int64(121*time.Minute + 4*time.Minute) // two drains of an hour, and what is added for processes that are quiet
	b := bound(t, open(t, server.URL(), o), "7/1h")
	take(t, b, "another", 1)
	has(1, "two hours later")

	take(t, bound(t, s, "10/146000h"), "key", 1) // the longest there is
	has(2, "beside one of centuries")

	real := open(t, server.URL(), redisstore.Options{Prefix: "real", Timeout: time.Minute})
	take(t, bound(t, real, "10/1m, 20/1h"), "key", 1)
	key = redisstore.ListsKey("real", "api")
	has(1, "at once")
	ms, err := do(t, c, "PTTL", key).AsInt64()
	if ttl := time.Duration(ms) * time.Millisecond; err != nil || ttl < 2*time.Hour || ttl > 2*time.Hour+10*time.Minute {
		t.Errorf("the record of 20/1h stays for %v, %v", ttl, err)
	}
}

// listsOften is how often a process reads the record in any case.
const listsOften = time.Minute

// TestListsLost has a server lose the record while a process decides: that notes its
// list again at once, so that a process which then starts with another list knows it.
func TestListsLost(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, server *redistest.Server){
		"FLUSHALL": func(t *testing.T, server *redistest.Server) { do(t, client(t, server.Addr), "FLUSHALL") },
		"kill -9":  func(t *testing.T, server *redistest.Server) { server.Kill(); server.Restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			s := open(t, server.URL(), redisstore.Options{Prefix: "lost", Timeout: patience})
			s.CountNodes(nil)
			minute := bound(t, s, "10/1m")
			take(t, minute, "key", 10)
			eventually(t, "the process is counted", func() bool { return s.Nodes() == 1 })
			lose(t, server)
			c, key := client(t, server.Addr), redisstore.ListsKey("lost", "api")
			for end := time.Now().Add(listsOften * 2 / 3); ; time.Sleep(10 * time.Millisecond) {
				_, _ = minute.Decide(ctx, meter.OpTake, "other", 1)
				if n, err := do(t, c, "HLEN", key).AsInt64(); err == nil && n == 1 {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the record is not there again before it is due")
				}
			}
			take(t, minute, "key", 10)
			other := open(t, server.URL(), redisstore.Options{Prefix: "lost", Timeout: patience})
			if d := take(t, bound(t, other, "10/1h"), "key", 1); d.Allowed {
				t.Errorf("10/1h starts afresh after 10/1m: %+v", d)
			}
		})
	}
}

// An evals driver counts calls: those of the script that decides, and others.
type evals struct {
	redisstore.Driver
	decided, beside int
}

func (e *evals) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	e.decided++
	return e.Driver.EvalSHA(ctx, sha, keys, args)
}

func (e *evals) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	e.beside++
	return e.Driver.Eval(ctx, script, keys, args)
}

// TestListsRecordWarm counts calls: a list costs one more with its first decision, and
// none from then on. A list that has ended is no longer asked for.
func TestListsRecordWarm(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	o := redisstore.Options{Prefix: "warm", Timeout: time.Minute, Now: func() int64 { return now }}
	take(t, bound(t, open(t, server.URL(), o), "10/1h"), "other", 1)
	c := client(t, server.Addr)
	do(t, c, "SCRIPT", "LOAD", redisstore.Source)
	counts := &evals{Driver: redisstore.NewDriver(c)}
	o.Driver = counts
	s, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := bound(t, s, "10/1m")
	for i := range 3 {
		if take(t, b, fmt.Sprint("key ", i), 1); counts.beside != 1 || counts.decided != i+1 {
			t.Errorf("%d calls for the record and %d others after %d decisions", counts.beside, counts.decided, i+1)
		}
	}
	if n := len(s.Before(b)); n != 1 {
		t.Errorf("10/1m may have taken the place of %d limits, want 1", n)
	}
	now += int64(3 * time.Hour)
	take(t, b, "key", 1)
	if n := len(s.Before(b)); n != 0 {
		t.Errorf("three hours later 10/1m may have taken the place of %d limits", n)
	}
}

// TestListsAway has no server answer: a decision ends in its time, and when the server
// answers the record is read before anything is decided.
func TestListsAway(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	o := redisstore.Options{Prefix: "away", Timeout: time.Minute}
	take(t, bound(t, open(t, server.URL(), o), "10/1h"), "key", 10)

	s := open(t, proxy.URL(), redisstore.Options{Prefix: "away", Timeout: 200 * time.Millisecond})
	b := bound(t, s, "10/2h")
	proxy.Set(redistest.Fault{Stall: true})
	begun := time.Now()
	if _, err := b.Decide(ctx, meter.OpPeek, "key", 1); err == nil {
		t.Error("decided by a server that does not answer")
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("it took %v", took)
	}
	proxy.Set(redistest.Fault{})
	for end := time.Now().Add(patience); len(s.Before(b)) == 0; time.Sleep(10 * time.Millisecond) {
		_, _ = b.Decide(ctx, meter.OpPeek, "another", 1)
		if time.Now().After(end) {
			t.Fatal("the record has not been read")
		}
	}
	for end := time.Now().Add(patience); ; {
		d, err := b.Decide(ctx, meter.OpPeek, "key", 1)
		if err == nil && d.Allowed {
			t.Errorf("%+v", d)
		}
		if err == nil || time.Now().After(end) {
			break
		}
	}
}

// A slowRecord driver answers late when the record is read.
type slowRecord struct {
	redisstore.Driver
	late time.Duration
}

func (s *slowRecord) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	if script != redisstore.Source {
		time.Sleep(s.late)
	}
	return s.Driver.Eval(ctx, script, keys, args)
}

// TestListsSlow has the record come late, as it does in a process that is being
// started: no decision is made before. One whose time is up meanwhile is not made.
func TestListsSlow(t *testing.T) {
	const late = 500 * time.Millisecond
	for _, timeout := range []time.Duration{2 * late, late / 5} {
		server := redistest.Start(t)
		c := client(t, server.Addr)
		take(t, bound(t, open(t, "", redisstore.Options{Prefix: "slow", Client: c}), "10/1h"), "key", 10)
		b := bound(t, open(t, "", redisstore.Options{Prefix: "slow", Driver: &slowRecord{redisstore.NewDriver(c), late}, Timeout: timeout}), "10/2h")
		for end := time.Now().Add(patience); ; {
			d, err := b.Decide(ctx, meter.OpTake, "key", 1)
			if err == nil && d.Allowed {
				t.Errorf("with %v for a request, 10/2h starts afresh after 10/1h: %+v", timeout, d)
			}
			if err != nil && !errors.Is(err, redisstore.ErrNotExecuted) || time.Now().After(end) {
				t.Error(err)
			}
			if err == nil || t.Failed() {
				break
			}
		}
	}
}

// TestListsReset resets a key in a process that knows the new limit alone: what it has
// used under the former one is gone, too.
func TestListsReset(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	o := redisstore.Options{Prefix: "reset", Now: func() int64 { return now }}
	take(t, bound(t, open(t, server.URL(), o), "10/1h"), "key", 10)
	s := open(t, server.URL(), o)
	b := bound(t, s, "10/2h")
	if err := s.Reset(ctx, []stint.Layer{{Bound: b, Key: "key"}}); err != nil {
		t.Fatal(err)
	}
	if d := take(t, b, "key", 10); !d.Allowed {
		t.Errorf("after a reset %d are left", d.Remaining)
	}
}
