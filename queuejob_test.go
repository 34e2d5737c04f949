package stint_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
)

// TestSubmitJob has jobs of different costs keep the pace together, and each that is dropped
// hear why.
func TestSubmitJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := queueOf(t, "1/s burst 3", stint.QueueOptions{MaxAge: time.Minute, MaxDepth: 10})
		began := time.Now()
		var mu sync.Mutex
		var got []string
		note := func(text string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%v ", time.Since(began))+fmt.Sprintf(text, args...))
		}
		submit := func(cost int64) error {
			return q.SubmitJob(stint.Job{
				Cost: cost, Run: func() { note("%d starts", cost) }, Dropped: func(err error) { note("%d dropped: %v", cost, err) },
			})
		}
		for _, cost := range []int64{3, 2, 1, 0} {
			if err := submit(cost); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		if err := submit(-1); !errors.Is(err, stint.ErrCost) {
			t.Errorf("a cost below zero: %v", err)
		}
		var never *stint.WaitError
		if err := submit(4); !errors.As(err, &never) || never.Decision.RetryAfter != stint.Never {
			t.Errorf("a cost above the limit: %v", err)
		}
		if err := q.SubmitJob(stint.Job{}); err == nil {
			t.Error("no work: no error")
		}
		if err := errors.Join(submit(3), submit(2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err := l.SetLimits(parse(t, "1/s burst 1")); err != nil { // 2 can never pass now
			t.Fatal(err)
		}
		synctest.Wait()
		if err := l.SetLimits(parse(t, "1/30s burst 3")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		for _, cost := range []int64{3, 1} {
			if err := submit(cost); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		q.Close()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []string{
			"0s 3 starts", "2s 2 starts", "3s 1 starts", "4s 0 starts", "7s 3 starts",
			"8s 2 dropped: stint: the cost is above the limit of 1 and can never pass",
			"3m8s 3 starts", "3m8s 1 dropped: stint: closed",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if s := q.Stats(); s.Started != 6 || s.Depth != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestJobPriority has jobs start in the order of their priority, those of one priority in
// the order in which they came; those of another cost keep their turns, and nothing starts
// that is too old.
func TestJobPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := queueOf(t, "1/s burst 2", stint.QueueOptions{MaxAge: 7500 * time.Millisecond, MaxDepth: 20})
		began := time.Now()
		var mu sync.Mutex
		var got []string
		note := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%v %s", time.Since(began), text))
		}
		for _, j := range []struct {
			name           string
			cost, priority int
		}{{"first", 2, 0}, {"low 1", 1, 0}, {"low 2", 1, 0}, {"two", 2, 0}, {"high 1", 1, 5}, {"high 2", 1, 5}, {"mid", 1, 3}, {"low 3", 1, 0}} {
			if err := q.SubmitJob(stint.Job{
				Cost: int64(j.cost), Priority: j.priority, Run: func() { note(j.name) },
				Dropped: func(err error) { note(j.name + ": " + err.Error()) },
			}); err != nil {
				note(j.name + " refused: " + err.Error())
			}
		}
		time.Sleep(4500 * time.Millisecond)
		for range 2 {
			if err := q.SubmitJob(stint.Job{Priority: 9, Run: func() { note("urgent") }}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		q.Close()
		mu.Lock()
		defer mu.Unlock()
		want := []string{
			"0s first", "0s low 3 refused: stint: too old to start", "1s high 1", "2s high 2", "4s two", "5s urgent", "6s urgent",
			"7s low 1: stint: too old to start", "7s low 2: stint: too old to start", "7s mid", // 8s would be too late
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}
