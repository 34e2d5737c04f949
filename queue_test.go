package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

func queueOf(t testing.TB, limit string, o stint.QueueOptions) (*stint.Queue, *stint.Limiter) {
	t.Helper()
	l := limiterOf(t, limit)
	return queueOn(t, l, o), l
}

func queueOn(t testing.TB, l *stint.Limiter, o stint.QueueOptions) *stint.Queue {
	t.Helper()
	q, err := stint.NewQueue(l, "k", o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// work is how a piece of work goes into a queue.
type work struct {
	verb   string // do or submit
	name   string
	at     time.Duration
	cancel time.Duration // the moment a do is cancelled, if not 0
}

// play puts work into a queue and writes down what becomes of it. It returns
// once all has ended.
func play(q *stint.Queue, works []work) *transcript {
	tr := newTranscript()
	var wg sync.WaitGroup
	for _, w := range works {
		wg.Go(func() {
			time.Sleep(w.at)
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			if w.cancel > 0 {
				stop := time.AfterFunc(w.cancel-w.at, cancel)
				defer stop.Stop()
			}
			run := func() { tr.add("%s starts", w.name) }
			var err error
			if w.verb == "do" {
				err = q.Do(ctx, func(context.Context) error { run(); return nil })
			} else {
				err = q.Submit(run)
			}
			if err != nil {
				tr.add("%s: %s", w.name, refusal(err))
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Minute) // what was submitted
	return tr
}

// refusal is an error of a queue in a few words.
func refusal(err error) string {
	var full *stint.FullError
	switch {
	case errors.As(err, &full):
		return fmt.Sprintf("full, %v", full.Decision.RetryAfter)
	case errors.Is(err, stint.ErrStale):
		return "stale"
	case errors.Is(err, stint.ErrClosed):
		return "closed"
	}
	return outcome(err)
}

func TestQueueScenarios(t *testing.T) {
	tests := []struct {
		name, limit string
		options     stint.QueueOptions
		works       []work
		want        string
		stats       stint.QueueStats
	}{
		{"an even pace, in order, whoever brings it", "1/s leaky_queue burst 5", stint.QueueOptions{}, []work{
			{"do", "a", 0, 0}, {"submit", "b", 1 * ms, 0}, {"do", "c", 2 * ms, 0},
			{"submit", "d", 3 * ms, 0}, {"submit", "e", 4 * ms, 0}, {"do", "f", 5 * ms, 0},
		}, `0s a starts
			1s b starts
			2s c starts
			3s d starts
			4s e starts
			5s f starts`,
			stint.QueueStats{Started: 6, Waited: 15*time.Second - 15*ms, Longest: 5*time.Second - 5*ms}},
		{"full", "1/s leaky_queue burst 2", stint.QueueOptions{}, []work{
			{"do", "a", 0, 0}, {"submit", "b", 1 * ms, 0}, {"do", "c", 2 * ms, 0},
			{"do", "d", 3 * ms, 0}, {"submit", "e", 4 * ms, 0}, {"submit", "f", 1000 * ms, 0},
		}, `0s a starts
			3ms d: full, 997ms
			4ms e: full, 996ms
			1s b starts
			2s c starts
			3s f starts`,
			stint.QueueStats{Started: 4, Refused: 2, Waited: 5*time.Second - 3*ms, Longest: 2 * time.Second}},
		{"nobody waits with a burst of 0", "1/s leaky_queue burst 0", stint.QueueOptions{}, []work{
			{"do", "a", 0, 0}, {"submit", "b", 1 * ms, 0}, {"submit", "c", 1000 * ms, 0},
		}, `0s a starts
			1ms b: full, 999ms
			1s c starts`,
			stint.QueueStats{Started: 2, Refused: 1}},
		{"who gives up frees the place", "1/s leaky_queue burst 3", stint.QueueOptions{}, []work{
			{"do", "a", 0, 0}, {"do", "b", 1 * ms, 500 * ms}, {"submit", "c", 2 * ms, 0}, {"do", "d", 3 * ms, 0},
			{"submit", "e", 600 * ms, 0},
		}, `0s a starts
			500ms b: cancelled
			1s c starts
			2s d starts
			3s e starts`,
			stint.QueueStats{Started: 4, Cancelled: 1, Waited: 6*time.Second - 605*ms, Longest: 2400 * ms}},
		{"too old is known on arrival", "1/s leaky_queue burst 5", stint.QueueOptions{MaxAge: 1500 * ms}, []work{
			{"do", "a", 0, 0}, {"do", "b", 1 * ms, 0}, {"do", "c", 2 * ms, 0}, {"submit", "d", 3 * ms, 0},
			{"submit", "e", 500 * ms, 0},
		}, `0s a starts
			2ms c: stale
			3ms d: stale
			1s b starts
			2s e starts`,
			stint.QueueStats{Started: 3, Dropped: 2, Waited: 2499 * ms, Longest: 1500 * ms}},
		{"a bucket starts its burst together", "1/s burst 2", stint.QueueOptions{}, []work{
			{"do", "a", 0, 0}, {"submit", "b", 1 * ms, 0}, {"submit", "c", 2 * ms, 0}, {"do", "d", 3 * ms, 0},
			{"do", "e", 4 * ms, 0}, {"submit", "f", 5 * ms, 0},
		}, `0s a starts
			1ms b starts
			4ms e: full, 996ms
			5ms f: full, 995ms
			1s c starts
			2s d starts`,
			stint.QueueStats{Started: 4, Refused: 2, Waited: 3*time.Second - 5*ms, Longest: 2*time.Second - 3*ms}},
		{"a bucket with a depth", "1/s burst 1", stint.QueueOptions{MaxDepth: 3}, []work{
			{"do", "a", 0, 0}, {"submit", "b", 1 * ms, 0}, {"submit", "c", 2 * ms, 0}, {"do", "d", 3 * ms, 0},
			{"do", "e", 4 * ms, 0},
		}, `0s a starts
			4ms e: full, 996ms
			1s b starts
			2s c starts
			3s d starts`,
			stint.QueueStats{Started: 4, Refused: 1, Waited: 6*time.Second - 6*ms, Longest: 3*time.Second - 3*ms}},
		{"a depth below the burst", "1/s leaky_queue burst 9", stint.QueueOptions{MaxDepth: 1}, []work{
			{"do", "a", 0, 0}, {"submit", "b", 1 * ms, 0}, {"submit", "c", 2 * ms, 0}, {"do", "d", 1500 * ms, 0},
		}, `0s a starts
			2ms c: full, 998ms
			1s b starts
			2s d starts`,
			stint.QueueStats{Started: 3, Refused: 1, Waited: 1499 * ms, Longest: 999 * ms}},
		{"too old behind a bucket", "1/s burst 1", stint.QueueOptions{MaxDepth: 9, MaxAge: 1500 * ms}, []work{
			{"do", "a", 0, 0}, {"submit", "b", 1 * ms, 0}, {"do", "c", 2 * ms, 0}, {"submit", "d", 3 * ms, 0},
			{"submit", "e", 500 * ms, 0},
		}, `0s a starts
			2ms c: stale
			3ms d: stale
			1s b starts
			2s e starts`,
			stint.QueueStats{Started: 3, Dropped: 2, Waited: 2499 * ms, Longest: 1500 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, l := queueOf(t, tt.limit, tt.options)
				play(q, tt.works).check(t, tt.want)
				if s := q.Stats(); s != tt.stats {
					t.Errorf("stats %+v, want %+v", s, tt.stats)
				}
				empty(t, l)
			})
		})
	}
}

func TestQueueStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := queueOf(t, "1/s leaky_queue burst 5", stint.QueueOptions{})
		for range 4 {
			if err := q.Submit(func() {}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * ms)
		}
		want := stint.QueueStats{Depth: 3, Oldest: 300 * ms, Next: 600 * ms, Started: 1}
		if s := q.Stats(); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
		time.Sleep(600 * ms)
		synctest.Wait()
		want = stint.QueueStats{Depth: 2, Oldest: 800 * ms, Next: time.Second, Started: 2, Waited: 900 * ms, Longest: 900 * ms}
		if s := q.Stats(); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
		time.Sleep(2 * time.Second)
		empty(t, l)
		if s := q.Stats(); s.Depth != 0 || s.Oldest != 0 || s.Next != 0 || s.Started != 4 {
			t.Errorf("%+v", s)
		}
	})
}

func TestQueueDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := queueOf(t, "1/s leaky_queue burst 5", stint.QueueOptions{MaxAge: time.Hour})
		failed := errors.New("failed")
		type key struct{}
		ctx := context.WithValue(bg, key{}, 1)
		err := q.Do(ctx, func(got context.Context) error {
			if got != ctx {
				t.Error("fn gets another context: its age would end with the wait's")
			}
			return failed
		})
		if err != failed {
			t.Errorf("%v, want what fn returned", err)
		}
		done, cancel := context.WithCancel(bg)
		cancel()
		never := func(context.Context) error { t.Error("ran"); return nil }
		if err := q.Do(done, never); !errors.Is(err, context.Canceled) {
			t.Errorf("context done: %v", err)
		}
		if q.Do(bg, nil) == nil || q.Submit(nil) == nil {
			t.Error("nil is work")
		}
		soon, stop := context.WithTimeout(bg, 999*ms)
		defer stop()
		var early *stint.WaitError
		if err := q.Do(soon, never); !errors.As(err, &early) {
			t.Errorf("deadline: %v", err)
		}
		if d, _ := l.Peek(bg, "k", 1); d.Delay != time.Second {
			t.Errorf("something more was charged: %+v", d)
		}
		empty(t, l)
	})
}

// A panic in fn reaches the caller of Do, and the queue goes on.
func TestQueuePanicInDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := queueOf(t, "1/s leaky_queue burst 5", stint.QueueOptions{})
		func() {
			defer func() {
				if got := recover(); got != "boo" {
					t.Errorf("recovered %v", got)
				}
			}()
			q.Do(bg, func(context.Context) error { panic("boo") })
		}()
		if err := q.Do(bg, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		q.Close()
		empty(t, l)
	})
}

// A panic in submitted work ends the program like that of any goroutine.
func TestQueuePanicInSubmit(t *testing.T) {
	if os.Getenv("STINT_TEST_PANIC") != "" {
		q, _ := queueOf(t, "1/s leaky_queue burst 5", stint.QueueOptions{})
		q.Submit(func() { panic("boo from work") })
		time.Sleep(10 * time.Second)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestQueuePanicInSubmit$")
	cmd.Env = append(os.Environ(), "STINT_TEST_PANIC=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: boo from work") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestQueueClose(t *testing.T) {
	for _, limit := range []string{"1/s leaky_queue burst 9", "1/s burst 1"} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, l := queueOf(t, limit, stint.QueueOptions{MaxDepth: 9})
				tr := newTranscript()
				var wg sync.WaitGroup
				for i := range 8 {
					run := func() { tr.add("%d starts", i) }
					wg.Go(func() {
						time.Sleep(time.Duration(i) * ms)
						var err error
						if i%2 == 0 {
							err = q.Do(bg, func(context.Context) error { run(); return nil })
						} else {
							err = q.Submit(run)
						}
						if err != nil && err != stint.ErrClosed {
							t.Errorf("%d: %v", i, err)
						}
					})
				}
				time.Sleep(1500 * ms)
				q.Close()
				if s := q.Stats(); s.Depth != 0 || s.Started != 2 || s.Dropped != 6 {
					t.Errorf("%+v", s)
				}
				wg.Wait()
				q.Close()
				if err := q.Do(bg, func(context.Context) error { return nil }); err != stint.ErrClosed {
					t.Errorf("do: %v", err)
				}
				if err := q.Submit(func() {}); err != stint.ErrClosed {
					t.Errorf("submit: %v", err)
				}
				if d, _ := l.Peek(bg, "k", 1); d.ResetAfter != 500*ms {
					t.Errorf("places are still taken: %+v", d)
				}
				tr.check(t, "0s 0 starts\n1s 1 starts")
				empty(t, l)
			})
		})
	}
}

// Close may be called from work that the queue has started.
func TestQueueCloseFromWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := queueOf(t, "1/s leaky_queue burst 9", stint.QueueOptions{})
		for range 3 {
			if err := q.Submit(q.Close); err != nil && err != stint.ErrClosed {
				t.Error(err)
			}
		}
		if err := q.Do(bg, func(context.Context) error { q.Close(); return nil }); err != nil && err != stint.ErrClosed {
			t.Error(err)
		}
		empty(t, l)
	})
}

// Wait and two queues share one line for the key.
func TestQueueSharesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "1/s leaky_queue burst 2")
		a, b := queueOn(t, l, stint.QueueOptions{}), queueOn(t, l, stint.QueueOptions{})
		tr := newTranscript()
		var wg sync.WaitGroup
		must(t, l, 1)
		tell := func(name string) func() { return func() { tr.add("%s starts", name) } }
		steps := []func(){
			func() { a.Submit(tell("a")) },
			func() { wg.Go(func() { l.Wait(bg, "k", 1); tr.add("wait passes") }) },
			func() { wg.Go(func() { l.Wait(bg, "k", 1); tr.add("wait for room passes") }) },
			func() { tr.add("b: %s", refusal(b.Submit(tell("b")))) }, // behind who waits for room
		}
		for _, step := range steps {
			step()
			time.Sleep(ms)
			synctest.Wait()
		}
		wg.Wait()
		tr.check(t, `3ms b: full, 997ms
			1s a starts
			2s wait passes
			3s wait for room passes`)
		a.Close()
		b.Close()
		empty(t, l)
	})
}

// TestQueueOptionsBelowZero refuses bounds that no queue can have.
func TestQueueOptionsBelowZero(t *testing.T) {
	l := limiterOf(t, "1/s burst 1")
	for _, o := range []stint.QueueOptions{{MaxAge: -1}, {MaxDepth: -1}} {
		if q, err := stint.NewQueue(l, "k", o); q != nil || err == nil || !strings.Contains(err.Error(), "at least 0") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// The store fails: no caller hangs, the error is the store's, and what was accepted is
// counted.
func TestQueueStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Store: memstore.New(memstore.Options{})}
		l := limiterOn(t, store, "1/s burst 1")
		q := queueOn(t, l, stint.QueueOptions{MaxDepth: 9})
		ran := 0
		for range 4 {
			if err := q.Submit(func() { ran++ }); err != nil {
				t.Fatal(err)
			}
		}
		store.fails.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if s := q.Stats(); s.Depth != 0 || ran != 1 || s.Started != 1 || s.Dropped != 3 || s.Cancelled != 0 {
			t.Errorf("%d ran, %+v", ran, s)
		}
		store.fails.Store(false)
		store.Close()
		if err := q.Submit(func() {}); !errors.Is(err, stint.ErrClosed) {
			t.Error(err)
		}
		empty(t, l)
	})
}

func TestQueueThousandWithRandomCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := queueOf(t, "100/s leaky_queue burst 300", stint.QueueOptions{MaxAge: 2500 * ms})
		begin := time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		run := func() {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Since(begin))
		}
		var wg sync.WaitGroup
		for i := range 1000 {
			arrive := rand.N(3 * time.Second)
			patience := rand.N(5 * time.Second)
			wg.Go(func() {
				time.Sleep(arrive)
				if i%3 == 0 {
					q.Submit(run)
					return
				}
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				stop := time.AfterFunc(patience, cancel)
				defer stop.Stop()
				q.Do(ctx, func(context.Context) error { run(); return nil })
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		envelope(t, starts, 1, 10*ms)
		s := q.Stats()
		if sum := s.Started + s.Refused + s.Dropped + s.Cancelled; sum != 1000 || s.Started != uint64(len(starts)) || s.Longest > 2500*ms {
			t.Errorf("%d started, %+v", len(starts), s)
		}
		empty(t, l)
	})
}

// A flood is refused beyond the depth. Once it has run, work is as usual.
func TestQueueRecovers(t *testing.T) {
	for _, limit := range []string{"1/s burst 1", "1/s leaky_queue burst 9", "5/1m sliding_log"} {
		synctest.Test(t, func(t *testing.T) {
			q, l := queueOf(t, limit, stint.QueueOptions{MaxDepth: 3})
			defer q.Close()
			var ran atomic.Int64
			work := func() { ran.Add(1) }
			for range 1000 {
				_ = q.Submit(work) // most are refused
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			flood := q.Stats()
			if flood.Refused < 900 || ran.Load() != int64(flood.Started) || flood.Started+flood.Refused != 1000 {
				t.Errorf("%s: %d ran, %+v", limit, ran.Load(), flood)
			}
			for range 10 {
				for range 3 {
					if err := q.Submit(work); err != nil {
						t.Errorf("%s, later: %v", limit, err)
					}
				}
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			if s := q.Stats(); s.Started != flood.Started+30 || s.Refused != flood.Refused {
				t.Errorf("%s: %+v, later %+v", limit, flood, s)
			}
			empty(t, l)
		})
	}
}

// On the real clock and all cores, closed in the middle.
func TestQueueUnderContention(t *testing.T) {
	for range 5 {
		q, l := queueOf(t, "20000/s leaky_queue burst 500", stint.QueueOptions{})
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				if i%2 == 0 {
					q.Submit(func() {})
					return
				}
				ctx, cancel := context.WithTimeout(bg, time.Duration(rand.IntN(int(30*ms))))
				defer cancel()
				q.Do(ctx, func(context.Context) error { return nil })
			})
		}
		time.Sleep(time.Duration(rand.IntN(int(20 * ms))))
		q.Close()
		wg.Wait()
		q.Close()
		if waiters, keys := l.Waiting(); waiters != 0 || keys != 0 {
			t.Errorf("%d waiters left in %d lines", waiters, keys)
		}
	}
}
