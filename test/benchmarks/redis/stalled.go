package redis

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// A stalled is what came of the calls during a stall.
type stalled struct {
	lasted         time.Duration
	said           [notSent + 1]int // calls, by what the store said
	before, after  []time.Duration  // what calls took that began before the breaker was seen open, and after, sorted
	slow           int              // calls above 1 ms
	opened, backIn time.Duration    // from the beginning, until a call was refused; from the end, until Redis decided
}

// judge sorts calls: to the stall belong all that were on their way in it.
func judge(all []ask, stopped, resumed time.Duration) (stalled, error) {
	r := stalled{lasted: resumed - stopped}
	const never = time.Duration(math.MaxInt64)
	opened, back := never, never
	for _, a := range all {
		switch {
		case a.said == decided && a.ended > resumed:
			back = min(back, a.ended)
		case a.said == notAsked && a.ended > stopped:
			opened = min(opened, a.ended)
		}
	}
	for _, a := range all {
		if a.ended < stopped || a.begun > resumed {
			continue
		}
		took := a.ended - a.begun
		r.said[a.said]++
		if took > time.Millisecond {
			r.slow++
		}
		if a.begun < opened {
			r.before = append(r.before, took)
		} else {
			r.after = append(r.after, took)
		}
	}
	if len(r.before) == 0 || len(r.after) == 0 || back == never {
		return r, errors.New("the breaker did not open in the stall, or Redis did not decide after it")
	}
	slices.Sort(r.before)
	slices.Sort(r.after)
	r.opened, r.backIn = opened-stopped, back-resumed
	return r, nil
}

// stallTable prints what came of a stall, and notes what the project promises.
func (f *figures) stallTable(r stalled, err error) error {
	if err != nil {
		return err
	}
	calls := len(r.before) + len(r.after)
	slowest := ms(r.before[len(r.before)-1])
	p99 := ms(r.after[(len(r.after)*99+99)/100-1])
	f.Table([][]string{
		{fmt.Sprintf("%d callers, a stall of %.1f s", stallCallers, r.lasted.Seconds()), ""},
		{"calls", fmt.Sprint(calls)},
		{"of which Redis decided, just before or after", fmt.Sprint(r.said[decided])},
		{"answered locally, and ambiguous: Redis may charge them", fmt.Sprint(r.said[ambiguous])},
		{"answered locally, and not sent to Redis", fmt.Sprint(r.said[notAsked] + r.said[notSent])},
		{"above 1 ms", fmt.Sprintf("%.3f %%", 100*float64(r.slow)/float64(calls))},
		{"calls before the breaker was seen open", fmt.Sprint(len(r.before))},
		{"the slowest of them, ms", report.Number(slowest)},
		{"the breaker was seen open after, ms", report.Number(ms(r.opened))},
		{"after that: the median of calls, ms", report.Number(ms(r.after[(len(r.after)-1)/2]))},
		{"p99, ms", report.Number(p99)},
		{"the slowest, ms", report.Number(ms(r.after[len(r.after)-1]))},
		{"from the end of the stall to a decision by Redis, ms", report.Number(ms(r.backIn))},
	})
	fmt.Fprintf(f.Out, "\nA redis-server is stopped (SIGSTOP) and goes on (SIGCONT). In front of it is a store with the defaults, "+
		"a deadline of 15 ms among them, and package fallback. Each caller pauses 1 ms between calls, so that local decisions do not keep the cores busy: "+
		"this is about how long a call takes, not about how many there could be. While the breaker is open no call of a caller is sent: "+
		"the server is tried beside them.\n")
	f.AtMost(30, slowest, " ms", "a stall: the slowest call before the breaker opens")
	f.AtMost(1, p99, " ms", "a stall: p99 of calls while the breaker is open")
	f.AtMost(1, r.backIn.Seconds(), " s", "a stall: from its end to the first decision by Redis")
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
