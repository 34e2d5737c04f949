package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/stint-dev/stint"

	"github.com/stint-dev/stint/planner/trial"
)

type simulateCmd struct {
	Limit    []string      `sep:"none" placeholder:"LIMIT" help:"A limit: '5/s burst 5'. If repeated, all of them apply at once, for each key."`
	Rules    string        `placeholder:"FILE" help:"Decide requests by this rules file: lines with a time, attributes and a cost."`
	Arrivals string        `placeholder:"PHASES" help:"Send requests in phases instead of reading operations: '10@1/s 20@once +5s'."`
	Lasts    time.Duration `placeholder:"2s" help:"With --arrivals: how long each request is in flight, for limits such as '20 in flight'."`
	Retry    time.Duration `placeholder:"10ms" help:"With --arrivals: send a denied request again after this long until it passes. Without it, a denied request is dropped."`
	Compare  []string      `sep:"none" placeholder:"LIMIT" help:"Run these limits side by side on the same arrivals, of --arrivals or of standard input. 'LIMIT, LIMIT' are layers of one candidate."`
	Stretch  time.Duration `placeholder:"1s" help:"With --compare, or --arrivals and --nodes: show the most that passed in any stretch this long. The default is the longest period of the limits."`
	JSON     bool          `name:"json" help:"With --compare, or --arrivals and --nodes: write JSON."`
	Store    string        `placeholder:"URL" help:"Decide the operations, or the arrivals of --nodes, in this Redis or Valkey, by the times of the lines; waits are then rounded up to a microsecond. Keys have a random prefix and are removed at the end."`
	Nodes    int           `placeholder:"N" help:"With --arrivals: simulate N processes that share the limits. Requests go to them one after the other."`
	Mode     string        `placeholder:"MODE" help:"How they share the limits: strict, lease, async or share. Strict is shown beside it. The default is all: strict and share, and with --store lease and async."`
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
    stint simulate --compare '10/s burst 20' --arrivals '100@20/s 50@5/s'
    stint simulate --limit '1000/s burst 500' --nodes 4 --arrivals '3000@1500/s'
    stint simulate --limit '1000/s burst 500' --nodes 4 --arrivals '3000@1500/s' \
        --store redis://127.0.0.1:6379

Modes strict and share are simulated in this process; lease and async, on a Redis.`
}

// Run does one of three things: operations, phases or a comparison.
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
	case phases != nil && c.Nodes > 0:
		return c.compareModes(e, limits, phases)
	case phases != nil:
		return trial.Drive(e.out, limits, phases, c.Retry)
	}
	return c.operations(e)
}

// check refuses flags that do nothing together.
func (c *simulateCmd) check() error {
	comparing := len(c.Compare) > 0
	switch {
	case c.Rules != "" && (comparing || len(c.Limit) > 0 || len(c.More) > 0 || c.Arrivals != "" || c.Lasts != 0 || c.Retry != 0 || c.Stretch != 0 || c.JSON || c.Store != "" || c.Nodes != 0 || c.Mode != ""):
		return usage("--rules", "stands alone: the file says the limits, and standard input the requests")
	case comparing && len(c.Limit) > 0:
		return usage("--limit", "--compare names the limits itself: leave --limit out")
	case comparing && c.Retry != 0:
		return usage("--retry", "the arrivals of --compare come at their own times: leave --retry out")
	case !comparing && len(c.More) > 0:
		return usage("--limit", "says which limits hold, and %q stands by itself: leave one of them out, or compare both", c.More[0])
	case !comparing && (c.Stretch != 0 || c.JSON) && (c.Arrivals == "" || c.Nodes == 0):
		return usage("--stretch and --json", "go with --compare, or with --arrivals and --nodes")
	case c.Lasts < 0 || c.Lasts != 0 && c.Arrivals == "":
		return usage("--lasts", "goes with --arrivals, and is longer than 0s; lines have a field for it")
	case c.Retry < 0 || c.Retry != 0 && c.Arrivals == "":
		return usage("--retry", "goes with --arrivals, and is longer than 0s")
	case c.Stretch < 0:
		return usage("--stretch", "%v: longer than 0s", c.Stretch)
	case !comparing && c.Arrivals != "" && len(c.Limit) == 0:
		return usage("--limit", "missing: write what to try, such as --limit 10/s")
	}
	return c.checkShared(comparing, c.Arrivals != "")
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
	return c.show(e, "--compare", comparison, err)
}

// show writes a comparison; flag is where its limits come from.
func (c *simulateCmd) show(e *env, flag string, comparison *trial.Comparison, err error) error {
	switch {
	case errors.Is(err, stint.ErrLayers):
		return &usageError{flag, err}
	case err != nil:
		return err
	case c.JSON:
		return json.NewEncoder(e.out).Encode(comparison)
	}
	return comparison.Text(e.out)
}
