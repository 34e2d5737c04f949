package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A gate is a driver that holds calls back until it is opened, and notes what
// they ask.
type gate struct {
	redisstore.Driver
	opened chan struct{}
	reply  func(args []string) (any, error) // if set, and not nil, answers in place of the server

	mu    sync.Mutex
	asked [][]string
}

func (g *gate) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	g.mu.Lock()
	g.asked = append(g.asked, args)
	g.mu.Unlock()
	select {
	case <-g.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g.reply != nil {
		if v, err := g.reply(args); v != nil || err != nil {
			return v, err
		}
	}
	return g.Driver.EvalSHA(ctx, sha, keys, args)
}

// calls returns what requests have asked so far. What the store asks beside them
// of the server's memory does not count.
func (g *gate) calls() [][]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.asked), func(args []string) bool { return args[0] == "I" })
}

// gated returns a store behind a gate that is shut, to a server.
func gated(t *testing.T, server *redistest.Server, o redisstore.Options) (*redisstore.Store, *gate) {
	t.Helper()
	c := client(t, server.Addr)
	do(t, c, "SCRIPT", "LOAD", redisstore.Source)
	g := &gate{Driver: redisstore.NewDriver(c), opened: make(chan struct{})}
	o.Driver = g
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute // of which a part is how long requests wait
	}
	return open(t, "", o), g
}

// crowd starts calls, of which the first are on their way, and the others wait.
func crowd(t *testing.T, store *redisstore.Store, g *gate, calls []func()) *sync.WaitGroup {
	t.Helper()
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(call)
		for deadline := time.Now().Add(patience); len(g.calls())+store.Waiting(false)+store.Waiting(true) <= i; time.Sleep(10 * time.Microsecond) {
			if time.Now().After(deadline) {
				t.Fatalf("call %d neither came to the server nor waits", i)
			}
		}
	}
	if got, want := len(g.calls()), min(len(calls), redisstore.MaxInFlight); got != want {
		t.Fatalf("%d calls on their way, want %d", got, want)
	}
	return &wg
}

// filling returns enough requests under a limit that those behind them wait.
func filling(t *testing.T, store *redisstore.Store, text string) []func() {
	t.Helper()
	limit := bind(t, store, text)
	calls := make([]func(), redisstore.MaxInFlight)
	for i := range calls {
		calls[i] = func() {
			if d, err := limit.Decide(ctx, meter.OpTake, "filling", 1); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		}
	}
	return calls
}

// takes returns requests for a unit of a key, which count what passes.
func takes(t *testing.T, limit stint.Bound, n int, passed *atomic.Int64) []func() {
	calls := make([]func(), n)
	for i := range calls {
		calls[i] = func() {
			d, err := limit.Decide(ctx, meter.OpTake, "a", 1)
			if err != nil {
				t.Error(err)
			}
			passed.Add(d.Taken)
		}
	}
	return calls
}

// short and long are limits of the fast and the general path of the script, of
// plenty.
const short, long = "1/s burst 1000", "1000/1m sliding_buckets"

// TestBatch sends requests of different limits, keys, verbs and layers in few
// calls: each has the answer that it would have had alone.
func TestBatch(t *testing.T) {
	t.Run("short", func(t *testing.T) {
		testBatch(t, short, [][]string{
			{"5/s"}, {"7/1m"}, {"100/1h burst 3"}, {"9/1m leaky_queue"}, {"3/s burst 20", "11/1m", "6/1h leaky_queue"},
			{"5/1m fixed_window"}, {"6/1m sliding_counter"}, {"4/1m fixed_window", "9/1h sliding_counter", "11/1m"},
		}, meter.OpTake)
	})
	for _, op := range []meter.Op{meter.OpTake, meter.OpTakeUpTo} {
		t.Run(fmt.Sprint("long ", op), func(t *testing.T) {
			testBatch(t, long, [][]string{
				{"5/1m fixed_window count_denied"}, {"405/1h sliding_log"}, {"6/1m sliding_counter relaxed", "5/s"}, {"3 per day in Europe/Paris"},
				{"7/1m token_bucket_interval", "6/1h sliding_buckets", "6/1h sliding_log"},
			}, op)
		})
	}
}

func testBatch(t *testing.T, way string, sets [][]string, op meter.Op) {
	var at atomic.Int64
	at.Store(1795229355387954000)
	server := redistest.Start(t)
	store, g := gated(t, server, redisstore.Options{Prefix: "together", Now: at.Load})
	var alone [2]*redisstore.Store // of which the second knows what the gated one will have done
	for i, prefix := range []string{"together", "alone"} {
		alone[i] = open(t, server.URL(), redisstore.Options{Prefix: prefix, Now: at.Load})
	}
	for range 400 { // a log that is long
		at.Add(12345678000)
		for _, one := range alone {
			take(t, bind(t, one, "405/1h sliding_log"), "key0", 1)
		}
	}
	calls := filling(t, store, way)
	var mu sync.Mutex
	got, want := map[string][]string{}, map[string][]string{}
	ask := func(i int, op meter.Op, cost int64) (call func()) {
		texts, key := sets[i%len(sets)], fmt.Sprint("key", i/len(sets)%3/2)
		name := fmt.Sprint(texts, key, op, cost)
		d, err := bind(t, alone[1], texts...).Decide(ctx, op, key, cost)
		want[name] = append(want[name], fmt.Sprintf("%+v %v", d, err))
		limit := bind(t, store, texts...)
		return func() {
			d, err := limit.Decide(ctx, op, key, cost)
			mu.Lock()
			defer mu.Unlock()
			got[name] = append(got[name], fmt.Sprintf("%+v %v", d, err))
		}
	}
	each := 60 / len(sets)
	for i := range each * len(sets) {
		calls = append(calls, ask(i, op, 1))
	}
	wg := crowd(t, store, g, calls)
	close(g.opened)
	wg.Wait()
	if n := len(g.calls()); n != redisstore.MaxInFlight+1 {
		t.Errorf("%d calls, want one more than were on their way", n)
	}
	for i := range 9 * len(sets) { // what is left
		ask(i, meter.OpPeek, int64(i%3))()
	}
	for name := range want {
		slices.Sort(got[name])
		slices.Sort(want[name])
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s:\n got %v\nwant %v", name, got[name], want[name])
		}
	}
}

// TestBatchMany sends waiting requests in batches of bounded size.
func TestBatchMany(t *testing.T) {
	store, g := gated(t, redistest.Start(t), redisstore.Options{})
	var passed atomic.Int64
	wg := crowd(t, store, g, append(filling(t, store, short), takes(t, bind(t, store, "50/1h"), 2*redisstore.MostTogether+1, &passed)...))
	close(g.opened)
	wg.Wait()
	if n := len(g.calls()); n != redisstore.MaxInFlight+3 || passed.Load() != 50 {
		t.Errorf("%d calls, %d units passed: want %d, 50", n, passed.Load(), redisstore.MaxInFlight+3)
	}
	if n := store.Stats().Together; n != 2*redisstore.MostTogether { // the last goes alone
		t.Errorf("%d requests shared calls", n)
	}
	shows(t, "requests in a call", fmt.Sprint(redisstore.MostTogether, ", less with long logs"))
}

// TestBatchOthers lets those that cannot be decided with the others do these
// no harm: a key of another program, and states of other forms of the limit.
func TestBatchOthers(t *testing.T) {
	t.Run("short", func(t *testing.T) { testBatchOthers(t, short, "4/s") })
	t.Run("mixed", func(t *testing.T) { testBatchOthers(t, short, "4/s") })
	t.Run("mixed windows", func(t *testing.T) { testBatchOthers(t, "1000/1m fixed_window", "4/1h fixed_window") })
	t.Run("window", func(t *testing.T) { testBatchOthers(t, "1000/1m fixed_window", "4/1h fixed_window") })
	t.Run("counter", func(t *testing.T) { testBatchOthers(t, "1000/1m sliding_counter", "4/1h sliding_counter") })
	t.Run("long", func(t *testing.T) { testBatchOthers(t, long, "4/1h sliding_buckets") })
	t.Run("log", func(t *testing.T) { testBatchOthers(t, long, "4/1h sliding_log") })
}

func testBatchOthers(t *testing.T, way, text string) {
	server := redistest.Start(t)
	store, g := gated(t, server, redisstore.Options{Prefix: "test"})
	limit := bind(t, store, text)
	var mu sync.Mutex
	left, failed := map[string]int64{}, map[string]error{}
	calls := filling(t, store, way)
	for _, key := range []string{"a", "list", "b", "other", "c", "garbage", "d"} {
		calls = append(calls, func() {
			d, err := limit.Decide(ctx, meter.OpTake, key, 1)
			mu.Lock()
			defer mu.Unlock()
			left[key], failed[key] = d.Remaining, err
		})
	}
	if strings.Contains(t.Name(), "mixed") { // which lua/fastpath.lua decides
		calls = append(calls, func() {
			if _, err := limit.Decide(ctx, meter.OpPeek, "e", 1); err != nil {
				t.Error(err)
			}
		})
	}
	c := client(t, server.Addr)
	state := func(key string) string {
		return redisstore.StateOf(redisstore.Options{Prefix: "test"}, key, limit)
	}
	do(t, c, "RPUSH", state("list"), "another's")
	if way == short { // a bucket of other numbers, that has long been full again
		do(t, c, "SET", state("other"), "=g10000:1:100:\x00\x00\x00\x00\x00\x00\x00\x00")
	}
	do(t, c, "SET", state("garbage"), "somebody's")
	if way == short { // a state, and something more
		same := open(t, server.URL(), redisstore.Options{Prefix: "test"})
		take(t, bind(t, same, text), "c", 1)
		do(t, c, "APPEND", state("c"), "x")
	}
	wg := crowd(t, store, g, calls)
	close(g.opened)
	wg.Wait()
	for _, key := range []string{"a", "b", "d", "other"} {
		if failed[key] != nil || left[key] != 3 {
			t.Errorf("%s: %d left, %v; want 3", key, left[key], failed[key])
		}
	}
	for _, key := range []string{"list", "garbage", "c"} {
		if key == "c" && way != short {
			continue
		}
		if !errors.Is(failed[key], redisstore.ErrConfiguration) {
			t.Errorf("%s: %v, want ErrConfiguration", key, failed[key])
		}
	}
}

// TestBatchLeft has callers give up: what waits is surely not executed, what
// is on its way may be, and goes on without them.
func TestBatchLeft(t *testing.T) {
	for what, c := range map[string]struct {
		is   error
		left int64 // of ten, to who asks next
	}{"waiting": {redisstore.ErrNotExecuted, 9}, "on its way": {redisstore.ErrAmbiguous, 8}} {
		store, g := gated(t, redistest.Start(t), redisstore.Options{})
		limit := bind(t, store, "10/1h")
		leaving, leave := context.WithCancel(ctx)
		gone := make(chan error, 1)
		leaves := func() {
			leave()
			if err := <-gone; !errors.Is(err, c.is) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want %v", what, err, c.is)
			}
		}
		if what == "on its way" {
			g.reply = func(args []string) (any, error) {
				if args[0] == "B" || args[0] == "R" {
					leaves()
				}
				return nil, nil
			}
		}
		wg := crowd(t, store, g, append(filling(t, store, short), func() {
			_, err := limit.Decide(leaving, meter.OpTake, "a", 1)
			gone <- err
		}, func() {
			if d, err := limit.Decide(ctx, meter.OpTake, "a", 1); err != nil || d.Remaining != c.left {
				t.Errorf("%s: %+v, %v; want %d left", what, d, err, c.left)
			}
		}))
		if what == "waiting" {
			leaves()
		}
		close(g.opened)
		wg.Wait()
	}
}

// TestBatchSlow has calls take their time: what would wait for long goes as a
// call more.
func TestBatchSlow(t *testing.T) {
	store, g := gated(t, redistest.Start(t), redisstore.Options{Timeout: 30 * time.Second})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for _, call := range append(filling(t, store, short), takes(t, bind(t, store, "10/1h"), 20, &passed)...) {
		wg.Go(call)
	}
	eventually(t, "those that wait do not go", func() bool { return len(g.calls()) > redisstore.MaxInFlight })
	n := len(g.calls())
	close(g.opened)
	wg.Wait()
	if n != redisstore.MaxInFlight+1 || passed.Load() != 10 {
		t.Errorf("%d calls while none returned, %d passed: want %d, 10", n, passed.Load(), redisstore.MaxInFlight+1)
	}
}

// TestBatchFails has a call of many fail: all are told the same, and none is sent again.
// Where the server turns out to be a cluster, nothing was done, and each goes alone.
func TestBatchFails(t *testing.T) {
	for name, c := range map[string]struct {
		reply, is     error
		calls, passed int64 // of 20
	}{
		"a connection that breaks": {errors.New("the connection broke"), redisstore.ErrAmbiguous, 1, 0},
		"a cluster":                {redisstore.ReplyError("CROSSSLOT Keys in request don't hash to the same slot"), nil, 21, 10},
	} {
		t.Run(name, func(t *testing.T) {
			store, g := gated(t, redistest.Start(t), redisstore.Options{})
			g.reply = func(args []string) (any, error) {
				if args[0] == "B" || args[0] == "R" {
					return nil, c.reply
				}
				return nil, nil
			}
			limit := bind(t, store, "10/1h")
			var passed atomic.Int64
			calls := filling(t, store, short)
			for range 20 {
				calls = append(calls, func() {
					d, err := limit.Decide(ctx, meter.OpTake, "a", 1)
					if !errors.Is(err, c.is) {
						t.Errorf("%v, want %v", err, c.is)
					}
					passed.Add(d.Taken)
				})
			}
			wg := crowd(t, store, g, calls)
			close(g.opened)
			wg.Wait()
			if n := int64(len(g.calls()) - redisstore.MaxInFlight); n != c.calls || passed.Load() != c.passed {
				t.Errorf("%d calls, %d passed: want %d, %d", n, passed.Load(), c.calls, c.passed)
			}
		})
	}
}
