package luaserver_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/storetest"

	"github.com/stint-dev/stint/internal/leaktest"
	"github.com/stint-dev/stint/planner/luaserver"
)

func TestMain(m *testing.M) {
	// rueidis looks for a cluster first, and sleeps a second after that.
	leaktest.Main(m, goleak.Find, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

var ctx = context.Background()

// open returns a store on a server in the process.
func open(t testing.TB, server *luaserver.Server, now func() int64) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(redisstore.Options{Driver: server, Now: now, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestStore runs the suite that every store must pass.
func TestStore(t *testing.T) {
	if racing {
		t.Skip("it takes long with the race detector: make test runs it without")
	}
	part := 1
	if testing.Short() { // of a minute and a half
		part = 32
	}
	storetest.Suite{
		Quantum: time.Microsecond,
		Part:    part,
		Open: func(t testing.TB, now func() int64) stint.Store {
			return open(t, luaserver.New(), now)
		},
	}.Run(t)
}

// TestConcurrent takes from many goroutines: as much as there is, and no more.
func TestConcurrent(t *testing.T) {
	store := open(t, luaserver.New(), func() int64 { return 1e18 })
	defer store.Close()
	limit, err := store.Bind("test", stint.PerSecond(500))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var admitted atomic.Int64
	for range 20 {
		group.Go(func() {
			for range 50 {
				if ok, err := limit.Allow(ctx, "k", 1); err != nil {
					t.Error(err)
				} else if ok {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	if n := admitted.Load(); n != 500 {
		t.Errorf("%d of 500 admitted", n)
	}
}

// steps is how often a test does something at random.
func steps(n int) int {
	if racing || testing.Short() {
		return n / 40
	}
	return n
}

// startRedis starts a redis-server on a socket and returns a client of it. Both
// end with the test.
func startRedis(t *testing.T) rueidis.Client {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is missing: apt-get install redis-server: %v", err)
	}
	dir, err := os.MkdirTemp("", "luaserver") // short, as names of sockets are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	process := exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	option, err := rueidis.ParseURL("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	option.DisableCache = true
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		client, err := rueidis.NewClient(option)
		if err == nil {
			t.Cleanup(client.Close)
			return client
		}
	}
	t.Fatal("redis-server does not start")
	return nil
}

// both runs a script on a real server and on one in the process, and fails
// where they differ. The script returns a list.
func both(t *testing.T, client rueidis.Client, server *luaserver.Server, script string, args []string) {
	t.Helper()
	want, err := client.Do(ctx, client.B().Eval().Script(script).Numkeys(0).Arg(args...).Build()).ToAny()
	got, err2 := server.Eval(ctx, script, nil, args)
	if err != nil || err2 != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Fatalf("%q:\n got %#v, %v\nwant %#v, %v", args, got, err2, want, err)
	}
}

// aCommand calls what its arguments say, and answers with what came of it.
// Hashes have no order.
const aCommand = `
local r = redis.pcall(unpack(ARGV))
if type(r) ~= 'table' then return { type(r), r } end
if r.err then return { 'error', string.match(r.err, '^%u+') } end
if r.ok then return { 'status', r.ok } end
if string.upper(ARGV[1]) ~= 'HGETALL' then return { 'values', r } end
local pairs = {}
for i = 1, #r, 2 do pairs[#pairs + 1] = r[i] .. '=' .. r[i + 1] end
table.sort(pairs)
return { 'list', pairs }`

// TestCommands does random commands to a real server and to the one in the
// process: right ones and wrong ones, on text, hashes and nothing.
func TestCommands(t *testing.T) {
	client, server := startRedis(t), luaserver.New()
	rnd := rand.New(rand.NewPCG(2, 7))
	pick := func(from string) string {
		words := strings.Fields(from)
		return words[rnd.IntN(len(words))]
	}
	for range steps(20_000) {
		key := "key" + pick("1 2 3")
		field := func() string { return pick("a b c d") }
		text := func() string { return pick("x yy 7 -12 9223372036854775807 9223372036854775807x 1\x00\xff\n") }
		at := func() string { return pick("0 1 2 5 -1 -2 -7 100 x") }
		command := [][]string{
			{"GET", key}, {"SET", key, text()}, {"STRLEN", key}, {"APPEND", key, text()},
			{"GETRANGE", key, at(), at()}, {"SETRANGE", key, at(), text()}, {"SETRANGE", key, at(), ""},
			{"HGET", key, field()}, {"HSET", key, field(), text(), field(), text()}, {"HSET", key, field(), text(), field()},
			{"HDEL", key, field(), field()}, {"HGETALL", key}, {"HMGET", key, field(), field()}, {"HINCRBY", key, field(), text()},
			{"DEL", key, key}, {"EXISTS", key, key, "none"}, {"COPY", key, "key" + pick("1 2 3") + "x"},
			{"COPY", key + "x", "key4", "REPLACE"}, {"COPY", "key4", key, "OVER"}, {"get", key}, {"GET"}, {"GET", key, key},
		}[rnd.IntN(22)]
		both(t, client, server, aCommand, command)
	}
}

// numbers answers what Lua makes of two numbers that come as text.
const numbers = `
local a, b = tonumber(ARGV[1]), tonumber(ARGV[2])
local c = a < 9007199254740992 and a or 0 -- beyond it Lua's remainders are no whole numbers' any more
local function exact(v) return v and string.format('%.17g', v) or 'none' end
redis.call('HSET', 'numbers', 'a', a, 'b', b)
return {
  exact(a), exact(ARGV[1] + b), exact(ARGV[1] - ARGV[2]), exact(a * ARGV[2]), exact(ARGV[1] / 7), exact(c % 128), exact(ARGV[2] % '128'),
  exact(a - b), exact(c % 1000000007), exact(math.floor(a / 1000)), exact(math.ceil(a / 1000)), exact(math.min(a, b)), exact(math.max(a, b)),
  string.format('%016d', a), string.format('%d', a / 1000 + 2), string.format('%07d:%d', c % 10000000, b), string.format('%.0f', a + b),
  a, -1 - b, a / 3, a < b, a == b, redis.call('HGET', 'numbers', 'a'), redis.call('HGET', 'numbers', 'b'),
  struct.pack('<ddI4', a, b, a % 4294967296), struct.unpack('<I4d', struct.pack('<I4d', b % 4294967296, a)),
}`

// TestNumbers holds the interpreter's numbers to Redis', with whole ones of up
// to 2^53, with zeros in front or without.
func TestNumbers(t *testing.T) {
	client, server := startRedis(t), luaserver.New()
	rnd := rand.New(rand.NewPCG(5, 3))
	one := func() string {
		v := rnd.Int64N(1<<rnd.IntN(53)+1) + rnd.Int64N(3)
		switch rnd.IntN(6) {
		case 0:
			return fmt.Sprintf("%016d", v)
		case 1:
			return fmt.Sprintf("%d", int64(1)<<rnd.IntN(53))
		case 2:
			return fmt.Sprint(math.MaxInt64>>rnd.IntN(12)<<10, "0")
		case 3:
			return fmt.Sprintf(" %d.50 ", v>>12)
		}
		return fmt.Sprint(v)
	}
	for range steps(20_000) {
		both(t, client, server, numbers, []string{one(), one()})
	}
}

// patterns answers what string functions make of text, from a place in it.
const patterns = `
local out, s, at = {}, ARGV[1], tonumber(ARGV[2])
local function note(...)
  out[#out + 1] = select('#', ...)
  for i = 1, select('#', ...) do out[#out + 1] = tostring((select(i, ...))) end
end
note((string.match(s, '^(%d+):(%d+)$', at)))
note((string.match(s, '^(%d+):()', at)))
note((select(2, string.match(s, '^(%d+):(%d+):()', at))))
note((string.match(s, '^(%-?)(%d%d%d)(%d+)$')))
note((select(2, string.match(s, '^([gq])(%d+:(%d+):%d+):(%d+):(%d+)$'))))
note((string.match(s, '^i(%d+n?):(%d+)')))
note(string.find(s, '^[-giqslb]?%d') ~= nil, string.find(s, '^w[%ddm]') ~= nil, string.find(s, 'd') ~= nil)
note(string.sub(s, at), string.sub(s, 1, at), string.sub(s, at, at + 2), string.sub(s, -1), string.sub(s, -at, -2))
note(#s, string.rep(s, 2), string.rep('0', at - 3), string.lower('ABz-'), (string.byte(s, at)))
return out`

// TestPatterns holds the interpreter's string functions to Redis'.
func TestPatterns(t *testing.T) {
	client, server := startRedis(t), luaserver.New()
	rnd := rand.New(rand.NewPCG(8, 8))
	const from = "0123::--gqidwnD7\x00\xff "
	for range steps(20_000) {
		var s []byte
		for range rnd.IntN(24) {
			s = append(s, from[rnd.IntN(len(from))])
		}
		if rnd.IntN(2) == 0 {
			s = fmt.Appendf(nil, "%s%d:%d:%d:%d:%d%s", []string{"", "g", "q", "i", "w", "-"}[rnd.IntN(6)],
				rnd.IntN(3e6), rnd.IntN(50), rnd.IntN(5000), rnd.IntN(50), rnd.IntN(50), []string{"", ":", ":\xff"}[rnd.IntN(3)])
		}
		both(t, client, server, patterns, []string{string(s), fmt.Sprint(1 + rnd.IntN(26))})
	}
}
