package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// newLogs returns a pair that limits by logs only, all of them on one key.
func newLogs(t testing.TB, url string, seed uint64, logs ...stint.Limit) *pair {
	p := &pair{TB: t, now: 1_750_000_000_123_456_000, rnd: rand.New(rand.NewPCG(seed, 7))}
	clock := func() int64 { return p.now }
	p.redis = open(t, url, redisstore.Options{Now: clock})
	p.memory = memstore.New(memstore.Options{Now: clock})
	for _, l := range logs {
		p.bind(l)
	}
	return p
}

// decide asks both the same of one log.
func (p *pair) decide(l mirrored, op meter.Op, cost int64) {
	p.Helper()
	p.same(fmt.Sprintf("%d of %v", cost, l.Limit), op)(l.redis.Decide(ctx, op, "a", cost))(l.memory.Decide(ctx, op, "a", cost))
}

// passTime lets little time pass as a rule, now and then a part of a period, so
// that some of a long log comes to an end, seldom all of it.
func (p *pair) passTime(l stint.Limit) {
	period := int64(l.Period())
	d := int64(0)
	switch n := p.rnd.IntN(1000); {
	case n < 1:
		d = p.rnd.Int64N(2 * period)
	case n < 15:
		d = p.rnd.Int64N(period / 4)
	case n < 700:
		d = p.rnd.Int64N(2*period/l.Count() + 1)
	case n < 900:
		d = p.rnd.Int64N(100) * microsecond
	}
	if p.now < 1<<62-d { // beyond, microseconds are no longer exact
		p.now += (d + microsecond - 1) / microsecond * microsecond
	}
}

// stepLog lets time pass and does one random thing to a log.
func (p *pair) stepLog(l mirrored) {
	p.passTime(l.Limit)
	one := func(b stint.Bound) []stint.Layer { return []stint.Layer{{Bound: b, Key: "a"}} }
	some := 1 + p.rnd.Int64N(l.Count())
	few := 1 + p.rnd.Int64N(3)
	switch p.rnd.IntN(60) {
	case 0:
		p.decide(l, meter.OpTake, some)
	case 1, 2, 3, 4:
		p.decide(l, meter.OpPeek, some) // a wait that ends deep in the log
	case 5:
		p.decide(l, meter.OpTakeUpTo, few)
	case 6:
		p.decide(l, meter.OpTake, []int64{0, l.Count(), l.Count() + 1, math.MaxInt64}[p.rnd.IntN(4)])
	case 7:
		p.same("some", "refund")(p.redis.Refund(ctx, one(l.redis), few))(p.memory.Refund(ctx, one(l.memory), few))
	case 8:
		p.reserve("some", one(l.redis), one(l.memory), few)
	case 9:
		if n := len(p.tokens); n > 0 {
			p.settle(p.rnd.IntN(n))
		}
	case 10:
		r, m := one(l.redis), one(l.memory)
		r[0].Weight, m[0].Weight = few, few
		p.same("weighed", "take")(p.redis.Decide(ctx, meter.OpTake, r, 2))(p.memory.Decide(ctx, meter.OpTake, m, 2))
	case 11:
		p.decide(l, meter.OpTake, 1+p.rnd.Int64N(200)) // units of more than one byte
	default:
		p.decide(l, meter.OpTake, 1)
	}
}

// changeLog gives a log another count.
func (p *pair) changeLog() {
	name := p.limits[0].Name()
	p.limits, p.tokens = nil, nil
	p.bind(stint.New(20+p.rnd.Int64N(2000), time.Hour).WithAlgorithm(meter.SlidingLog).WithName(name))
}

// TestLongLog does random things to logs of up to thousands of entries, in Redis
// and in memory, one of which gets other counts all the while: nothing differs, whatever
// part of a log was read.
func TestLongLog(t *testing.T) {
	server := redistest.Start(t)
	steps := 60_000
	switch {
	case race.On:
		steps = 4_000
	case testing.Short():
		steps = 8_000
	}
	for seed, text := range []string{
		"60/1s sliding_log", "90/10s sliding_log", "150/1m sliding_log", "1000/1h sliding_log", "1000/2s sliding_log", "700/10m sliding_log count_denied",
		"3000/24h sliding_log", "900/10000h sliding_log", "1000/1h sliding_log changed",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			plain, changed := strings.CutSuffix(text, " changed")
			p := newLogs(t, server.URL(), uint64(seed), parse(t, plain).WithName(text))
			for i := range steps {
				if p.stepLog(p.limits[0]); changed && i%150 == 0 {
					p.changeLog()
				}
			}
		})
	}
}

// TestLongLogBytes follows a log through what makes it long and short again: it
// is never larger than one of as many entries should be, and seldom written
// whole.
func TestLongLogBytes(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	now := int64(1_750_000_000_000_000_000)
	o := redisstore.Options{Prefix: "bytes", Now: func() int64 { return now }}
	store := open(t, server.URL(), o)
	limit := bind(t, store, "1000/1h sliding_log")
	rnd := rand.New(rand.NewPCG(1, 1))
	name := redisstore.StateOf(o, "a", limit)
	admit := func(n int, gap, most int64) (largest int64) {
		t.Helper()
		for range n {
			now += 1 + rnd.Int64N(2*gap)
			take(t, limit, "a", 1)
			bytes, err := do(t, c, "MEMORY", "USAGE", name).Int64()
			if err != nil {
				t.Fatal(err)
			}
			largest = max(largest, bytes)
		}
		if largest > most {
			t.Errorf("%d bytes, want at most %d", largest, most)
		}
		return largest
	}
	gap := int64(time.Hour) / 1000
	admit(3000, gap, 4608)
	do(t, c, "CONFIG", "RESETSTAT")
	admit(3000, gap, 4608)
	if whole := callsOf(t, server, "set"); whole > 3000/8 {
		t.Errorf("3000 decisions wrote %d logs whole", whole)
	}
	admit(300, 10*gap, 4608)
	if b := admit(300, 10*gap, 1024); b < 256 {
		t.Errorf("%d bytes for about 100 entries", b)
	}
	admit(100, 200*gap, 640)
	admit(20, 200*gap, 200)
}

// callsOf returns how often the server has run a command.
func callsOf(t testing.TB, s *redistest.Server, command string) int64 {
	t.Helper()
	return s.Stat(t, "commandstats", "cmdstat_"+command+":calls=")
}

// longLog returns a log of 600 entries of the last ten minutes of the server's
// clock, which never expires as it stands, in a store on that clock.
func longLog(t *testing.T, server *redistest.Server) (limit stint.Bound, name string) {
	t.Helper()
	o := redisstore.Options{Prefix: "long"}
	past := time.Now().Add(-10 * time.Minute).UnixNano()
	virtual := o
	virtual.Now = func() int64 { return past }
	before := open(t, server.URL(), virtual)
	filled := bind(t, before, "1000/1h sliding_log")
	for range 600 {
		past += int64(time.Second) - 1
		take(t, filled, "a", 1)
	}
	store := open(t, server.URL(), o)
	t.Cleanup(func() { store.Close() })
	limit = bind(t, store, "1000/1h sliding_log")
	return limit, redisstore.StateOf(o, "a", limit)
}

// TestLongLogExpires looks at when a log expires of which a part was written.
func TestLongLogExpires(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	limit, name := longLog(t, server)
	for range 40 {
		do(t, c, "PERSIST", name)
		d := take(t, limit, "a", 1)
		ms, err := do(t, c, "PTTL", name).Int64()
		left := time.Duration(ms) * time.Millisecond
		if err != nil || left > d.ResetAfter+2*time.Millisecond || left < d.ResetAfter-time.Minute {
			t.Fatalf("expires in %v, as if never seen in %v: %v", left, d.ResetAfter, err)
		}
	}
}

// TestLongLogRefused takes commands away from the script: whichever it lacks,
// nothing has happened.
func TestLongLogRefused(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	limit, _ := longLog(t, server)
	want := take(t, limit, "a", 1).Remaining
	for _, command := range []string{"getrange", "setrange", "pexpire", "set"} {
		for range 30 {
			do(t, c, "ACL", "SETUSER", "default", "-"+command)
			d, err := limit.Decide(ctx, meter.OpTake, "a", 1)
			do(t, c, "ACL", "SETUSER", "default", "+"+command)
			switch {
			case err == nil:
				want--
			case !errors.Is(err, redisstore.ErrConfiguration):
				t.Fatalf("without %s: %v", command, err)
			}
			if err == nil && d.Remaining != want {
				t.Fatalf("without %s: %+v, want %d to remain", command, d, want)
			}
			if d := peek(t, limit, "a"); d.Remaining != want {
				t.Fatalf("after one without %s: %+v, want %d to remain", command, d, want)
			}
		}
	}
	if want > 1000-600-30 || want < 1000-600-1-60 {
		t.Errorf("%d remain: not every command is used now and then", want)
	}
}

// scriptTime returns how many microseconds the server spent on the longest of the
// script's runs that do makes, or all that it has worked meanwhile if that is less:
// the machine has other things to do, also in the middle of a run. Of several tries
// it is the best.
func scriptTime(t *testing.T, c redis.UniversalClient, tries int, do1 func()) float64 {
	t.Helper()
	best := math.Inf(1)
	for range tries {
		do(t, c, "SLOWLOG", "RESET")
		before := cpuOf(t, c)
		do1()
		worked := (cpuOf(t, c) - before) * 1e6
		list, err := c.SlowLogGet(ctx, 10).Result()
		if err != nil {
			t.Fatal(err)
		}
		longest := 0.0
		for _, entry := range list {
			if strings.HasPrefix(strings.ToUpper(entry.Args[0]), "EVAL") {
				longest = max(longest, float64(entry.Duration.Microseconds()))
			}
		}
		best = min(best, longest, worked)
	}
	return best
}

// TestLogCost holds what settling the oldest, the newest and those in the middle,
// cancelling, refunding and a stepped clock cost the server, for the longest log and the
// most parts there are, to a small multiple of a take that reads and writes the same state.
func TestLogCost(t *testing.T) {
	need.Time(t)
	server := redistest.Start(t, "--slowlog-log-slower-than", "0")
	c := client(t, server.Addr)
	now := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	store := open(t, server.URL(), redisstore.Options{Now: func() int64 { return now }, Timeout: patience})
	for _, one := range []struct {
		text    string
		entries int64
		apart   time.Duration
	}{
		{"10000/1h sliding_log", 9_900, 300 * time.Millisecond},
		{"1000000/1h sliding_buckets parts 3600", 3_600, time.Second},
	} {
		b := bind(t, store, one.text)
		layers := []stint.Layer{{Bound: b, Key: "a"}}
		reserve := func(cost int64) stint.ReservationID {
			now += int64(time.Second)
			_, id, err := store.Reserve(ctx, layers, cost, 3*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		const tries = 5
		var oldest, middle []stint.ReservationID
		for i := range one.entries {
			switch now += int64(one.apart); {
			case i < tries:
				oldest = append(oldest, reserve(1))
			case i >= one.entries/2 && i < one.entries/2+tries:
				middle = append(middle, reserve(1))
			default:
				take(t, b, "a", 1)
			}
		}
		settle := func(id stint.ReservationID, cost int64) {
			if _, err := store.Settle(ctx, id, cost); err != nil {
				t.Fatal(err)
			}
		}
		took := scriptTime(t, c, 7, func() {
			if _, err := store.Decide(ctx, meter.OpTakeUpTo, layers, 1); err != nil { // the general path
				t.Fatal(err)
			}
		})
		costs := func(what string, tries int, most float64, op func()) {
			us := scriptTime(t, c, tries, op)
			t.Logf("%s: %s: %.0f µs, %.1f times a take", one.text, what, us, us/took)
			if us > most*took {
				t.Errorf("%s: %s takes %.0f µs of the server, a take %.0f", one.text, what, us, took)
			}
		}
		refund := func(cost int64) func() {
			return func() {
				if _, err := store.Refund(ctx, layers, cost); err != nil {
					t.Fatal(err)
				}
			}
		}
		costs("settling the oldest", tries, 20, func() { settle(oldest[0], 0); oldest = oldest[1:] })
		costs("settling one in the middle", tries, 20, func() { settle(middle[0], 0); middle = middle[1:] })
		costs("settling at less", tries, 20, func() { settle(reserve(2), 1) })
		costs("cancelling", tries, 20, func() { settle(reserve(1), 0) })
		costs("a refund", tries, 20, refund(1))
		costs("a refund of nearly all", 1, 100, refund(one.entries-10))
		for range one.entries - 20 {
			now += int64(one.apart)
			take(t, b, "a", 1)
		}
		costs("a clock two hours behind", 1, 100, func() {
			id := reserve(1)
			now += int64(one.apart)
			for range 2 {
				now++
				decideAnyhow(t, store, layers)
			}
			settle(id, 0)
			now -= int64(2 * time.Hour)
			decideAnyhow(t, store, layers)
			now += int64(2 * time.Hour)
		})
	}
	shows(t, "one script, one limit", "1.5 ms: a log of 10,000")
}

// decideAnyhow asks for a unit, whether it passes or not.
func decideAnyhow(t testing.TB, store *redisstore.Store, layers []stint.Layer) {
	t.Helper()
	if _, err := store.Decide(ctx, meter.OpTake, layers, 1); err != nil {
		t.Fatal(err)
	}
}

// TestLogsInOneRequest refuses what one script would have to do too much for, when the
// limits are bound and when they meet in a request.
func TestLogsInOneRequest(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{MaxLog: 1000})
	var limits []stint.Limit
	var layers []stint.Layer
	for i := range 5 {
		l := stint.New(1000, time.Hour).WithAlgorithm(meter.SlidingLog).WithName(fmt.Sprint("log ", i))
		limits = append(limits, l)
		b := made.Bound(t, store, l.Name(), l)
		layers = append(layers, stint.Layer{Bound: b, Key: "a"})
	}
	if _, err := store.Bind("logs", limits...); !errors.Is(err, stint.ErrLayers) || !strings.Contains(err.Error(), "5000") {
		t.Errorf("five logs bound together: %v", err)
	}
	if err := store.Check("strict", limits...); !errors.Is(err, stint.ErrLayers) {
		t.Errorf("five logs checked: %v", err)
	}
	if _, err := store.Decide(ctx, meter.OpTake, layers, 1); !errors.Is(err, stint.ErrLayers) {
		t.Errorf("five logs in a request: %v", err)
	}
	if d, err := store.Decide(ctx, meter.OpTake, layers[:4], 1); err != nil || !d.Allowed {
		t.Errorf("four logs in a request: %+v, %v", d, err)
	}
	shows(t, "one script, one request", "40,000 entries of logs and parts")
}

// A linesKept is a logger of go-redis.
type linesKept struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *linesKept) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *linesKept) Printf(_ context.Context, format string, v ...any) {
	fmt.Fprintf(l, format+"\n", v...)
}

func (l *linesKept) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestLogTo has a store fail to connect: a store leaves it to the program where go-redis
// logs that, and LogTo says where.
func TestLogTo(t *testing.T) {
	defer redisstore.LogTo(nil)
	programs, ours := &linesKept{}, &linesKept{}
	fail := func(port string) {
		store := openPlain(t, redisstore.Options{URL: "redis://127.0.0.1:" + port})
		_, _ = bind(t, store, "5/1h").Decide(ctx, meter.OpTake, "a", 1)
		_ = store.Close()
	}
	redis.SetLogger(programs)
	fail("2")
	redisstore.LogTo(slog.New(slog.NewTextHandler(ours, nil)))
	fail("3")
	redisstore.LogTo(nil)
	fail("4")
	for _, one := range []struct {
		who  *linesKept
		port string
	}{{programs, "2"}, {ours, "3"}} {
		for _, port := range []string{"2", "3", "4"} {
			if got := strings.Contains(one.who.String(), "127.0.0.1:"+port+":"); got != (port == one.port) {
				t.Errorf("port %s: %v in\n%s", port, got, one.who)
			}
		}
	}
}
