package operate

import (
	"fmt"
	"time"

	"github.com/stint-dev/stint/policy"
)

// words says in a sentence or two how much of a limit is used, and why it denies.
func words(e *policy.RuleResult) string {
	switch e.Action {
	case "unlimited":
		return "Everything passes: the rule, or an override, says unlimited."
	case "block":
		return "Everything is denied by a block, until it is lifted."
	case "missing":
		return "The key is missing, and on_missing says deny."
	}
	l := e.Limit
	if wait, ends := e.RetryAfter.Duration(); e.Banned && ends {
		return fmt.Sprintf("Banned: everything is denied for %v yet. A reset ends it.", short(wait))
	}
	if e.Used < 0 {
		return "Not known: the store does not answer, and the rule is " + e.Failed.String() + " then."
	}
	text := ""
	if e.Failed != policy.NotFailed {
		text = "The store does not answer: this process decides by its share. "
	}
	switch {
	case l.InFlight():
		text += fmt.Sprintf("%d of %d in flight, %d left.", e.Used, e.Capacity, e.Remaining)
	case e.Used == 0:
		text += fmt.Sprintf("0 of %d used, %d left. As if never used.", e.Capacity, e.Remaining)
	default:
		text += fmt.Sprintf("%d of %d used, %d left. ", e.Used, e.Capacity, e.Remaining) + told(algorithms[l.Algorithm()].pace, l, e.ResetAfter)
	}
	wait, ends := e.RetryAfter.Duration()
	switch {
	case !e.Denied || ends && l.InFlight():
		return text
	case !ends:
		return text + fmt.Sprintf(" A request costs %d, which is more than can ever pass at once.", e.Cost)
	case e.Cost == 1:
		return text + fmt.Sprintf(" The next request passes in %v, if nothing else comes.", short(wait))
	}
	return text + fmt.Sprintf(" A request costs %d here and passes in %v, if nothing else comes.", e.Cost, short(wait))
}

// short rounds a duration for people.
func short(d time.Duration) time.Duration {
	unit := time.Millisecond
	switch {
	case d >= time.Hour:
		unit = time.Second
	case d < time.Millisecond:
		return d
	}
	return (d + unit - 1).Truncate(unit)
}
