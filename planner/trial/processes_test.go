package trial_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/planner/trial"
)

// play sends requests at a rate to one key and returns when each passed, and how
// often the server was asked.
func play(t *testing.T, limit stint.Limit, o trial.Options, every time.Duration, n int) (starts []int64, calls int64) {
	t.Helper()
	p, err := trial.NewProcesses([]stint.Limit{limit}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range n {
		at := int64(i) * int64(every)
		by, d, err := p.Take(context.Background(), trial.Arrival{At: at, Key: "a", Cost: 1})
		if err != nil || by != i%o.Count {
			t.Fatalf("%v: process %d: %v", o, by, err)
		}
		if d.Allowed {
			starts = append(starts, at)
		}
	}
	return starts, p.Calls(math.MaxInt64)
}

// within returns how many lie in [from, to).
func within(starts []int64, from, to time.Duration) (n int64) {
	for _, at := range starts {
		if at >= int64(from) && at < int64(to) {
			n++
		}
	}
	return n
}

// connect returns a client of a new server.
func connect(t *testing.T) rueidis.Client {
	t.Helper()
	server := redistest.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// All modes keep what they promise, with the server there and away: in any
// stretch at most the limit's envelope, and around a failure at most twice. Those
// that memory can hold do so with a server and without, alike.
func TestProcesses(t *testing.T) {
	for _, mode := range []redisstore.Mode{redisstore.Strict, redisstore.Share} {
		t.Run("memory/"+mode.String(), func(t *testing.T) { keepsPromise(t, trial.Options{Count: 4, Mode: mode}) })
	}
	if testing.Short() {
		t.Skip("a server, and some 80,000 calls")
	}
	client := connect(t)
	for _, mode := range []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async, redisstore.Share} {
		t.Run("redis/"+mode.String(), func(t *testing.T) {
			o := trial.Options{Count: 4, Mode: mode, Redis: trial.NewRedis(client)}
			keepsPromise(t, o)
			removed(t, client, o.Redis)
		})
	}
}

// removed checks that a simulation leaves nothing behind.
func removed(t *testing.T, client rueidis.Client, r *trial.Redis) {
	t.Helper()
	if err := r.Remove(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left, err := client.Do(context.Background(), client.B().Keys().Pattern("*").Build()).AsStrSlice(); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func keepsPromise(t *testing.T, o trial.Options) {
	limit, mode := stint.New(1000, time.Second).WithBurst(400), o.Mode
	const seconds = 6
	envelope := func(d time.Duration) int64 { return 400 + int64(d.Seconds()*1000) }
	starts, calls := play(t, limit, o, time.Second/1500, seconds*1500)
	room := map[redisstore.Mode]int64{redisstore.Async: 4 * 4}[mode]
	if got := within(starts, 0, seconds*time.Second); got > envelope(seconds*time.Second)+room || got < envelope(seconds*time.Second)*9/10 {
		t.Errorf("%v: %d passed in %d s, of %d", mode, got, seconds, envelope(seconds*time.Second))
	}
	least, most := map[redisstore.Mode]int64{redisstore.Strict: 7000, redisstore.Lease: 1, redisstore.Async: 1}[mode], map[redisstore.Mode]int64{redisstore.Strict: 9000, redisstore.Lease: 4000, redisstore.Async: 3500}[mode]
	if calls < least || calls > most {
		t.Errorf("%v: %d calls", mode, calls)
	}
	o.AwayFrom, o.AwayTo = int64(2*time.Second), int64(4*time.Second)
	starts, away := play(t, limit, o, time.Second/1500, seconds*1500)
	if mode != redisstore.Share && away >= calls {
		t.Errorf("%v: %d calls with the server away for two seconds, %d with it there", mode, away, calls)
	}
	if got := within(starts, 2*time.Second, 4*time.Second); got > envelope(2*time.Second)+4 || got < 1000 {
		t.Errorf("%v: %d passed while the server was away", mode, got)
	}
	if got := within(starts, 0, seconds*time.Second); got > 2*envelope(seconds*time.Second) {
		t.Errorf("%v: %d passed around a failure", mode, got)
	}
}

// What passed while the server was away is charged to it once it is back: a limit
// that is used up there stays used up.
func TestProcessesOwes(t *testing.T) {
	limit, err := stint.Parse("40/h fixed_window")
	if err != nil {
		t.Fatal(err)
	}
	o := trial.Options{Count: 4, AwayFrom: 0, AwayTo: int64(10 * time.Second)}
	starts, _ := play(t, limit, o, 100*time.Millisecond, 200)
	if got := within(starts, 0, 10*time.Second); got != 40 {
		t.Errorf("%d passed while the server was away, of 40", got)
	}
	if got := within(starts, 10*time.Second, time.Minute); got != 0 {
		t.Errorf("%d passed once it was back, though all was used up", got)
	}
}

// The server goes by its own clock: skew shows only where nodes decide.
func TestProcessesSkew(t *testing.T) {
	limit, err := stint.Parse("40/s fixed_window")
	if err != nil {
		t.Fatal(err)
	}
	most := func(o trial.Options) (most int64) {
		starts, _ := play(t, limit, o, 5*time.Millisecond, 800)
		for at := time.Duration(0); at < 4*time.Second; at += time.Second {
			most = max(most, within(starts, at, at+time.Second))
		}
		return most
	}
	for _, skew := range []time.Duration{0, 400 * time.Millisecond} {
		if got := most(trial.Options{Count: 4, Skew: skew}); got != 40 {
			t.Errorf("strict with a skew of %v: %d in a second", skew, got)
		}
	}
	if even := most(trial.Options{Count: 4, Mode: redisstore.Share}); even != 40 {
		t.Errorf("shares on even clocks: %d in a second", even)
	}
	if skewed := most(trial.Options{Count: 4, Mode: redisstore.Share, Skew: 900 * time.Millisecond}); skewed <= 40 {
		t.Errorf("shares on clocks that differ: %d in a second of the server's", skewed)
	}
}
