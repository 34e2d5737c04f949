package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/planner/trial"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/ruletest"
)

type simulateCmd struct {
	Limit    []string      `sep:"none" placeholder:"LIMIT" help:"A limit: '5/s burst 5'. If repeated, all of them apply at once, for each key."`
	Rules    string        `placeholder:"FILE" help:"Decide requests by this rules file: lines with a time, attributes and a cost."`
	Arrivals string        `placeholder:"PHASES" help:"Send requests in phases instead of reading operations: '10@1/s 20@once +5s'."`
	Lasts    time.Duration `placeholder:"2s" help:"With --arrivals: how long each request is in flight, for limits such as '20 in flight'."`
	Retry    time.Duration `placeholder:"10ms" help:"With --arrivals: send a denied request again after this long until it passes. Without it, a denied request is dropped."`
	Compare  []string      `sep:"none" placeholder:"LIMIT" help:"Run these limits side by side on the same arrivals, of --arrivals or of standard input. 'LIMIT, LIMIT' are layers of one candidate."`
	Stretch  time.Duration `placeholder:"1s" help:"With --compare: show the most that passed in any stretch this long. The default is the longest period of the limits."`
	JSON     bool          `name:"json" help:"With --compare: write JSON."`
	More     []string      `arg:"" optional:"" name:"limit" help:"More limits to --compare."`
}

// Help is what "stint simulate --help" says below the summary.
func (simulateCmd) Help() string {
	return `Without --arrivals and --compare, reads one operation a line and writes one
answer a line, on a clock that goes by the times of the lines:

    in:  {"t":"0s","key":"a","cost":1}
    out: {"t":"0s","key":"a","allowed":true,"limit":5,"remaining":4,
          "retry_after":"0s","reset_after":"200ms"}

--rules decides whole requests instead, by a rules file. They have the fields of
requests in test files (docs/TEST.md), and answers those of what these expect:

    in:  {"t":"0s","attributes":{"method":"POST","path":"/login",
          "ip":"192.0.2.1"},"expect":{"allowed":true}}
    out: {"t":"0s","allowed":true,"denied_by":[],"retry_after":"0s",
          "delay":"0s","remaining":4,"matched":["login"],
          "shadow_denied_by":[]}

--arrivals plays a client that sends one request after another, in phases:
10@1/s is ten requests at one a second, 20@once twenty at one instant, +5s a
pause. A phase ends with the slot of the request that would come next, or when
its last request started, if that is later. --compare takes the same phases as
requests that come at their own times, whatever became of those before.

For example:

    echo '{"t":"1s","key":"a"}' | stint simulate --limit '5/s burst 5'
    stint simulate --limit 10/s --arrivals '10@1/s 200@20/s' --retry 10ms
    stint simulate --arrivals '5@once +900ms 20@once +2s' \
        --compare 10/s '10/s fixed_window' '10/s sliding_log'
    stint simulate --compare '10/s burst 20' --arrivals '100@20/s 50@5/s'`
}

// Run plays operations, whole requests by rules, or phases, or compares limits.
func (c *simulateCmd) Run(e *env) error {
	if len(c.Compare) == 0 && len(c.Limit) == 0 {
		c.Compare, c.More = c.More, nil // limits by themselves are compared
	}
	if err := c.check(); err != nil {
		return err
	}
	limits, err := parseLimits("--limit", c.Limit)
	if err != nil {
		return err
	}
	var phases []trial.Phase
	if c.Arrivals != "" {
		if phases, err = trial.ParsePhases(c.Arrivals); err != nil {
			return &usageError{"--arrivals", err}
		}
		for i := range phases {
			phases[i].Lasts = c.Lasts
		}
	}
	switch {
	case c.Rules != "":
		return c.byRules(e)
	case len(c.Compare) > 0:
		return c.compare(e, phases)
	case phases != nil:
		return trial.Drive(e.out, limits, phases, c.Retry)
	}
	return c.operations(e)
}

// check returns an error for flags that contradict each other.
func (c *simulateCmd) check() error {
	comparing := len(c.Compare) > 0
	switch {
	case c.Rules != "" && (comparing || len(c.Limit) > 0 || len(c.More) > 0 || c.Arrivals != "" || c.Lasts != 0 || c.Retry != 0 || c.Stretch != 0 || c.JSON):
		return usage("--rules", "stands alone: the file says the limits, and standard input the requests")
	case comparing && len(c.Limit) > 0:
		return usage("--limit", "--compare names the limits itself: leave --limit out")
	case comparing && c.Retry != 0:
		return usage("--retry", "the arrivals of --compare come at their own times: leave --retry out")
	case !comparing && len(c.More) > 0:
		return usage("--limit", "says which limits hold, and %q stands by itself: leave one of them out, or compare both", c.More[0])
	case !comparing && (c.Stretch != 0 || c.JSON):
		return usage("--stretch and --json", "go with --compare")
	case c.Lasts < 0 || c.Lasts != 0 && c.Arrivals == "":
		return usage("--lasts", "goes with --arrivals, and is longer than 0s; lines have a field for it")
	case c.Retry < 0 || c.Retry != 0 && c.Arrivals == "":
		return usage("--retry", "goes with --arrivals, and is longer than 0s")
	case c.Stretch < 0:
		return usage("--stretch", "%v: longer than 0s", c.Stretch)
	case !comparing && c.Arrivals != "" && len(c.Limit) == 0:
		return usage("--limit", "missing: write what to try, such as --limit 10/s")
	}
	return nil
}

// operations answers the lines of standard input.
func (c *simulateCmd) operations(e *env) error {
	runner, err := simulate.InMemory(c.Limit, 0)
	if err != nil {
		return &usageError{"--limit", err}
	}
	return runner.Run(e.in, e.out)
}

// byRules answers whole requests by a rules file.
func (c *simulateCmd) byRules(e *env) error {
	file, err := rules.Read(c.Rules)
	if err != nil {
		return err
	}
	ok, err := ruletest.Lines(e.ctx, file, e.in, e.out)
	if err == nil && !ok {
		err = errors.New("not all answers are as expected")
	}
	return err
}

// compare runs each candidate on the same arrivals.
func (c *simulateCmd) compare(e *env, phases []trial.Phase) error {
	var candidates [][]stint.Limit
	for _, text := range append(c.Compare, c.More...) {
		limits, err := parseLimits("--compare", splitLimits(text))
		if err != nil {
			return err
		}
		candidates = append(candidates, limits)
	}
	arrivals, end := trial.Arrivals(phases)
	if phases == nil {
		var err error
		if arrivals, err = trial.ReadArrivals(e.in); err != nil {
			return err
		}
	}
	comparison, err := trial.Compare(candidates, arrivals, end, c.Stretch)
	switch {
	case errors.Is(err, stint.ErrLayers):
		return &usageError{"--compare", err}
	case err != nil:
		return err
	case c.JSON:
		return json.NewEncoder(e.out).Encode(comparison)
	}
	return comparison.Text(e.out)
}
