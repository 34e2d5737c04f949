package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

var ctx = context.Background()

func do(t testing.TB, c redis.UniversalClient, args ...string) *redis.Cmd {
	t.Helper()
	words := make([]any, len(args))
	for i, word := range args {
		words[i] = word
	}
	r := c.Do(ctx, words...)
	if err := r.Err(); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: %v", args, err)
	}
	return r
}

// keys returns all that there are.
func keys(t testing.TB, c redis.UniversalClient) []string {
	t.Helper()
	all, err := do(t, c, "KEYS", "*").StringSlice()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func take(t testing.TB, b stint.Bound, key string, cost int64) stint.Decision {
	t.Helper()
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func peek(t testing.TB, b stint.Bound, key string) stint.Decision {
	t.Helper()
	d, err := b.Decide(ctx, meter.OpPeek, key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTime goes by the server's own clock: what was taken comes back, and what
// is left in Redis expires no earlier than it is as if never seen, and soon
// after; after all verbs, there is nothing that never expires.
func TestTime(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	now := func() time.Duration {
		list, err := do(t, c, "TIME").Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(list[0])*time.Second + time.Duration(list[1])*time.Microsecond
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, text := range texts {
		for layers := 1; layers <= 2; layers++ {
			do(t, c, "FLUSHALL")
			store := open(t, server.URL(), redisstore.Options{})
			limit, both := bind(t, store, text), make([]stint.Layer, layers)
			for i := range both {
				both[i] = stint.Layer{Bound: limit, Key: fmt.Sprint("key ", i)}
			}
			before := now()
			d, err := store.Decide(ctx, meter.OpTake, both, 1)
			after := now()
			if err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", text, d, err)
			}
			if all := keys(t, c); len(all) != layers && now() < before+d.ResetAfter {
				t.Errorf("%s: keys %q", text, all)
			}
			for _, key := range keys(t, c) {
				ms, err := do(t, c, "PEXPIRETIME", key).Int64()
				end := time.Duration(ms) * time.Millisecond
				if err != nil || end != -2*time.Millisecond && (end < before+d.ResetAfter || end > after+d.ResetAfter+3*time.Millisecond) {
					t.Errorf("%s: %q expires at %v, as if never seen from %v on: %v", text, key, end, after+d.ResetAfter, err)
				}
			}
			for range 10 {
				cost := 1 + rnd.Int64N(3)
				d, id, err := store.Reserve(ctx, both, cost, time.Hour)
				if err == nil && d.Allowed {
					_, err = store.Settle(ctx, id, rnd.Int64N(5))
				}
				if err == nil {
					_, err = store.Refund(ctx, both, rnd.Int64N(2))
				}
				if err != nil {
					t.Fatal(err)
				}
				take(t, limit, fmt.Sprint(rnd.IntN(3)), cost)
			}
			for _, key := range keys(t, c) {
				if ms, err := do(t, c, "PTTL", key).Int64(); err != nil || ms == -1 {
					t.Errorf("%s: %q never expires: %d, %v", text, key, ms, err)
				}
			}
			store.Close()
		}
	}
	store := open(t, server.URL(), redisstore.Options{})
	limit := bind(t, store, "1/50ms")
	take(t, limit, "b", 1)
	for denied := take(t, limit, "b", 1); !denied.Allowed; denied = take(t, limit, "b", 1) {
		if denied.RetryAfter <= 0 || denied.RetryAfter > stint.Wait(50*time.Millisecond) {
			t.Fatalf("%+v", denied)
		}
		time.Sleep(time.Duration(denied.RetryAfter))
	}
}

// TestOneCall counts the calls of requests with several layers.
func TestOneCall(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{NewKeys: -1})
	take(t, bind(t, store, "1/s"), "loads the script", 1)
	layers := []stint.Layer{
		{Bound: bind(t, store, "10/s", "100/1m sliding_log", "7/1h"), Key: "user"},
		{Bound: bind(t, store, "1000/1h sliding_counter", "9 per day in Europe/Paris"), Key: "address"},
	}
	do(t, c, "CONFIG", "RESETSTAT")
	for range 12 {
		if _, err := store.Decide(ctx, meter.OpTake, layers, 1); err != nil {
			t.Fatal(err)
		}
	}
	info, err := do(t, c, "INFO", "commandstats").Text()
	if err != nil || !strings.Contains(info, "cmdstat_evalsha:calls=12,") {
		t.Errorf("not one call a decision: %v\n%s", err, info)
	}
}

// TestTwoProcesses settles in one store what another reserved, also under a
// name that the second does not know, and twice.
func TestTwoProcesses(t *testing.T) {
	server := redistest.Start(t)
	o := redisstore.Options{Prefix: "both"}
	one, other := open(t, server.URL(), o), open(t, server.URL(), o)
	l := stint.PerHour(10).WithName("named: {x}")
	b := made.Bound(t, one, l.Name(), l)
	_, id, err := one.Reserve(ctx, []stint.Layer{{Bound: b, Key: "a", Weight: 2}}, 3, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	first, err := other.Settle(ctx, id, 1)
	if err != nil || first.Remaining != 4 || first.Limit != 5 {
		t.Errorf("settled elsewhere: %+v, %v", first, err)
	}
	if again, err := one.Settle(ctx, id, 3); err != nil || again != first {
		t.Errorf("settled again: %+v, %v; want %+v", again, err, first)
	}
	for _, forged := range []stint.ReservationID{"", "-", id[1:], id + "0", "x" + id[1:], id[:len(id)-1] + "g"} {
		if d, err := other.Settle(ctx, forged, 0); !errors.Is(err, stint.ErrReservation) {
			t.Errorf("Settle(%q): %+v, %v", forged, d, err)
		}
	}
}

// TestErrors says what else may come of a call than a decision or one of the
// replies of TestReplies.
func TestErrors(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	o := redisstore.Options{Prefix: "e"}
	store := open(t, server.URL(), o)
	limit := bind(t, store, "10/1h")
	take(t, limit, "b", 1)
	try := func(what, key string, want error) {
		t.Helper()
		if d, err := limit.Decide(ctx, meter.OpTake, key, 1); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %+v, %v; want %v", what, d, err, want)
		}
	}
	do(t, c, "SET", redisstore.StateOf(o, "text", limit), "some text")
	try("another program's text", "text", redisstore.ErrConfiguration)
	try("all is well", "b", nil)
	hurry := open(t, server.URL(), redisstore.Options{Prefix: "e", Timeout: 200 * time.Millisecond})
	patient := limit
	limit = bind(t, hurry, "10/1h")
	eventually(t, "the store does not decide", func() bool { _, err := limit.Decide(ctx, meter.OpPeek, "b", 1); return err == nil })
	server.Signal(t, syscall.SIGSTOP)
	begun := time.Now()
	try("stalled", "b", redisstore.ErrAmbiguous)
	server.Signal(t, syscall.SIGCONT)
	limit = patient
	if waited := time.Since(begun); waited < 150*time.Millisecond {
		t.Errorf("gave up after %v, before its time", waited)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := limit.Decide(cancelled, meter.OpTake, "b", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	try("closed", "b", stint.ErrClosed)
}

// TestOptions refuses what cannot work, without telling the password.
func TestOptions(t *testing.T) {
	for what, o := range map[string]redisstore.Options{
		"no server": {}, "a brace": {URL: "redis://127.0.0.1:1", Prefix: "a{b"}, "no URL": {URL: "redis://:secret@%%"},
	} {
		if s, err := redisstore.New(o); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", what, s, err)
		}
	}
	store := open(t, redistest.Start(t).URL(), redisstore.Options{MaxLog: 100})
	for _, text := range []string{"101/s sliding_log", "5/1000000h sliding_log"} {
		l := parse(t, text)
		if _, err := store.Bind(l.Name(), l); err == nil || !strings.Contains(err.Error(), "sliding_log") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestKeys says how keys are named, and that what clients choose cannot reach
// another's.
func TestKeys(t *testing.T) {
	tenant := func(key string) string { name, _, _ := strings.Cut(key, "/"); return name }
	for _, c := range []struct {
		o                redisstore.Options
		key, limit, want string
	}{
		{redisstore.Options{Prefix: "stint"}, "10.0.0.1", "site/gcra:1s", "stint:{la}:site/gcra%3A1s:10.0.0.1"},
		{redisstore.Options{Prefix: "stint"}, "a", "a: b%", "stint:{3lu}:a%3A b%25:a"},
		{redisstore.Options{Prefix: "p", Tag: tenant}, "acme/u1", "l", "p:{7hq}:l:acme/u1"},
		{redisstore.Options{Prefix: "p", Tag: tenant}, "acme", "l", "p:{7hq}:l:acme"},
		{redisstore.Options{Prefix: "p"}, "", "l", "p:{265}:l:#47DEQpj8HBSa-_TImW-5JA"},
		{redisstore.Options{Prefix: "p"}, "}{", "l", "p:{#0_MILLjULMYTqNAG_RSAgg}:l"},
	} {
		if got := redisstore.State(c.o, c.key, c.limit); got != c.want && c.key != "}{" {
			t.Errorf("%q under %q: %q, want %q", c.key, c.limit, got, c.want)
		}
	}
	secret := redisstore.Options{Prefix: "p", HashSecret: []byte("secret")}
	if got := redisstore.State(secret, "10.0.0.1", "l"); strings.Contains(got, "10.0.0.1") || got == redisstore.State(redisstore.Options{Prefix: "p", HashSecret: []byte("other")}, "10.0.0.1", "l") {
		t.Errorf("hidden: %q", got)
	}
	keys := []string{"", "#", "#47DEQpj8HBSa-_TImW-5JA", "{", "}", "{}", "a}", "a:b", strings.Repeat("k", 64), strings.Repeat("k", 65), "\x00"}
	for _, o := range []redisstore.Options{{Prefix: "p"}, {Prefix: "p", Tag: func(string) string { return "a:b" }}, {Prefix: "p", Tag: func(string) string { return "" }}} {
		seen := make(map[string]string)
		for _, key := range keys {
			name := redisstore.State(o, key, "l")
			if other, ok := seen[name]; ok {
				t.Errorf("%q and %q are both %q", key, other, name)
			}
			seen[name] = key
			tag := name[strings.Index(name, "{")+1 : strings.Index(name, "}")]
			if tag == "" || redisstore.Slot(name) != redisstore.Slot(tag) {
				t.Errorf("%q: its slot is not that of its tag", name)
			}
		}
	}
}

// TestSlots holds slots to what Redis says of keys.
func TestSlots(t *testing.T) {
	c := client(t, redistest.Start(t, "--cluster-enabled", "yes").Addr)
	for _, key := range []string{"", "a", "123456789", "stint:{user1000}:10/s", "{}x", "a{b}c{d}", "{{b}}", "\x00\xff"} {
		want, err := do(t, c, "CLUSTER", "KEYSLOT", key).Int64()
		if err != nil || int64(redisstore.Slot(key)) != want {
			t.Errorf("%q: slot %d, want %d: %v", key, redisstore.Slot(key), want, err)
		}
	}
	for slot := range uint16(16384) {
		if redisstore.Slot(redisstore.Filler(slot)) != slot {
			t.Errorf("%q is not in slot %d", redisstore.Filler(slot), slot)
		}
	}
}

// TestBytes bounds what a key takes in Redis, of clients' keys of 14 bytes.
func TestBytes(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	for _, of := range []struct {
		text  string
		takes int
		most  int64
	}{
		{"100/s", 1, 120}, {"100/s leaky_queue", 1, 120}, {"7/1m", 1, 120}, {"100/1m fixed_window", 1, 120},
		{"100/1m sliding_counter", 1, 152}, {"1000/1h sliding_log", 1000, 4608}, {"1000/24h sliding_log", 1000, 4608},
	} {
		n := bytesOf(t, c, server.URL(), of.text, of.takes)
		t.Logf("%s after %d takes: %d bytes", of.text, of.takes, n)
		if n > of.most {
			t.Errorf("%s after %d takes: %d bytes, more than %d", of.text, of.takes, n, of.most)
		}
	}
}

// TestVersion has states that are written in a way that this version does not
// know be errors, and stay as they are.
func TestVersion(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), redisstore.Options{Prefix: "stint"})
	c := client(t, server.Addr)
	for i, text := range texts {
		b := bind(t, s, text)
		for _, state := range []string{"#1", "5171795229355387954", "=z1:2:3:4", "&9:", "=", "x"} {
			key := fmt.Sprint("key", i, state)
			name := redisstore.StateOf(redisstore.Options{Prefix: "stint"}, key, b)
			do(t, c, "SET", name, state)
			if _, err := b.Decide(ctx, meter.OpTake, key, 1); !errors.Is(err, redisstore.ErrConfiguration) {
				t.Errorf("%s on %q: %v", text, state, err)
			}
			if now := get(t, server, name); now != state {
				t.Errorf("%s made %q of %q", text, now, state)
			}
		}
	}
}

// TestTags spreads keys over as many tags as there are, evenly over slots, with
// the key's own slot close behind.
func TestTags(t *testing.T) {
	for _, tags := range []int{1, 64, 256, 4096} {
		perTag, begins := map[uint16]int{}, redisstore.Begins(tags)
		for i := range 100_000 {
			key := fmt.Sprint("client", i)
			slot := redisstore.Slot(begins(key))
			if perTag[slot]++; int(redisstore.Slot(key)-slot) >= 16384/tags {
				t.Fatalf("%d tags: %s of slot %d lies in %d", tags, key, redisstore.Slot(key), slot)
			}
		}
		if len(perTag) != tags {
			t.Errorf("%d slots of %d tags", len(perTag), tags)
		}
	}
}

func client(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := redisstore.Connect(ctx, &redis.UniversalOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true, ReadTimeout: patience, PoolSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func get(t *testing.T, server *redistest.Server, key string) string {
	t.Helper()
	c := client(t, server.Addr)
	v, err := c.Get(ctx, key).Result()
	if err != nil {
		t.Fatal(key, err)
	}
	return v
}

// TestScriptSentOnce has many calls on their way find the script gone: one of them
// sends it.
func TestScriptSentOnce(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Timeout: 5 * time.Second})
	limit := bind(t, store, "100000/1h")
	const callers, rounds = 256, 20
	for range rounds {
		do(t, c, "SCRIPT", "FLUSH")
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				// the slow path, on which only some are batched
				layers := []stint.Layer{{Bound: limit, Key: fmt.Sprint(i)}}
				if _, _, err := store.Reserve(ctx, layers, 1, time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	// who was told late that it is gone may send it again
	if n := callsOf(t, server, "eval"); n > 3*rounds {
		t.Errorf("the script was sent %d times in %d storms", n, rounds)
	}
	shows(t, "texts of the script that are sent when it is lost", "one a node")
}
