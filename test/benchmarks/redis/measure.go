package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// A result is what was measured of a contender, a value a round.
type result struct {
	name    string
	latency []float64 // µs, the median of one caller
	pace    []float64 // decisions a second of many callers
	cpu     []float64 // µs of the server a decision, with many callers
	busy    []float64 // the share of a processor that the server used meanwhile
	each    []float64 // decisions in a call; none where that is not known
}

// decisions times all contenders in turns: one caller of all, then many of each.
func (f *figures) decisions() error {
	s := f.server
	contenders, done, err := s.contenders()
	defer done()
	if err != nil {
		return err
	}
	results := make([]result, len(contenders))
	for i, c := range contenders { // warm up: connections, scripts, keys
		results[i].name = c.name
		if _, _, err := c.run(callers, f.Slice/10); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for range f.Rounds {
		if err := alone(contenders, results, f.Slice); err != nil {
			return err
		}
		for i, c := range contenders {
			if err := results[i].crowd(s, c, callers, f.Slice); err != nil {
				return fmt.Errorf("%s, %d callers: %w", c.name, callers, err)
			}
		}
	}
	f.table(results)
	f.promise(results)
	return nil
}

// alone times one caller, who makes a few calls by each contender in a turn, in an
// order that differs from turn to turn: what disturbs the machine meanwhile meets
// all alike.
func alone(contenders []contender, results []result, slice time.Duration) error {
	const few = 16
	for _, c := range contenders {
		if c.before != nil {
			if err := c.before(); err != nil {
				return err
			}
		}
	}
	each := make([][]float64, len(contenders))
	begun := time.Now()
	for turn := 0; time.Since(begun) < slice*time.Duration(len(contenders)); turn++ {
		for _, i := range rand.Perm(len(contenders)) {
			c := contenders[i]
			for k := range few {
				from := time.Now()
				if err := c.call(context.Background(), keyOf((turn*few+k)%c.over())); err != nil {
					return fmt.Errorf("%s, one caller: %w", c.name, err)
				}
				each[i] = append(each[i], float64(time.Since(from)))
			}
		}
	}
	for i := range results {
		results[i].latency = append(results[i].latency, report.Median(each[i])/1000)
	}
	return nil
}

// over returns how many keys it is called with.
func (c contender) over() int {
	if c.keys > 0 {
		return c.keys
	}
	return keys
}

// crowd times many callers.
func (r *result) crowd(s processors, c contender, callers int, slice time.Duration) error {
	if c.before != nil { // outside of the processor time
		if err := c.before(); err != nil {
			return err
		}
		c.before = nil
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	made := c.callsMade()
	took, each, err := c.run(callers, slice)
	if err != nil {
		return err
	}
	made = c.callsMade() - made
	after, err := s.cpu()
	if err != nil {
		return err
	}
	n := float64(len(each))
	r.pace = append(r.pace, n/took.Seconds())
	r.cpu = append(r.cpu, float64(after-before)/n/1000)
	if made > 0 {
		r.each = append(r.each, n/float64(made))
	}
	r.busy = append(r.busy, float64(after-before)/float64(took))
	return nil
}

// callsMade returns how many calls have been made, 0 if that is not known.
func (c contender) callsMade() uint64 {
	if c.made == nil {
		return 0
	}
	return c.made()
}

// run calls for a while from the given number of goroutines. It returns how long it
// took, and the duration of each call in ns. It ends early when further calls would
// be denied.
func (c contender) run(goroutines int, slice time.Duration) (took time.Duration, each []float64, err error) {
	if c.before != nil {
		if err := c.before(); err != nil {
			return 0, nil, err
		}
	}
	most := int64(1) << 40
	if c.keys > 0 {
		most = int64(c.keys * (logFull - logHas))
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	all := make([][]float64, goroutines)
	errs := make([]error, goroutines)
	begun := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			ctx := context.Background()
			for last := begun; last.Sub(begun) < slice; {
				i := next.Add(1) - 1
				if i >= most {
					return
				}
				if errs[g] = c.call(ctx, keyOf(int(i)%c.over())); errs[g] != nil {
					return
				}
				now := time.Now()
				all[g] = append(all[g], float64(now.Sub(last)))
				last = now
			}
		})
	}
	wg.Wait()
	took = time.Since(begun)
	for g := range all {
		each = append(each, all[g]...)
		if errs[g] != nil {
			err = errs[g]
		}
	}
	if len(each) == 0 && err == nil {
		err = fmt.Errorf("no call came to its end in %v", slice)
	}
	return took, each, err
}
