package server

import (
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// appendResult writes what a policy decided as the members of an object. It leaves
// out the members of a limit if no rule that matched has one.
func appendResult(b []byte, r *policy.Result) []byte {
	d := &r.Decision
	b = strconv.AppendBool(append(b, `"allowed":`...), d.Allowed)
	if rule := decider(r); rule != "" {
		b = appendText(append(b, `,"rule":`...), rule)
	}
	if r.Tightest >= 0 && r.Rules[r.Tightest].Action == "" {
		b = appendState(b, d)
	} else if !d.Allowed {
		b = appendWait(b, "retry_after", d.RetryAfter)
	}
	if !d.Allowed {
		b = appendTexts(append(b, `,"denied_by":`...), labels(r, false))
	}
	if r.Costs != nil {
		b = appendTexts(append(b, `,"counted":`...), r.Counted())
	}
	if r.ShadowDenied {
		b = appendTexts(append(b, `,"shadow_denied_by":`...), labels(r, true))
	}
	return b
}

// decider returns the rule that the answer is about: the rule of the tightest limit, else
// the first that matched and is not in shadow.
func decider(r *policy.Result) string {
	if r.Tightest >= 0 {
		return r.Rules[r.Tightest].Rule
	}
	for i := range r.Rules {
		if one := &r.Rules[i]; !one.Shadow {
			return one.Rule
		}
	}
	return ""
}

// appendState writes the members of a limit: what remains, and the waits.
func appendState(b []byte, d *stint.Decision) []byte {
	b = strconv.AppendInt(append(b, `,"limit":`...), d.Limit, 10)
	b = strconv.AppendInt(append(b, `,"remaining":`...), d.Remaining, 10)
	b = appendWait(b, "retry_after", d.RetryAfter)
	b = appendWait(b, "reset_after", stint.Wait(d.ResetAfter))
	if d.Delay > 0 {
		b = appendWait(b, "delay", stint.Wait(d.Delay))
	}
	return b
}

// labels returns the labels of the limits that denied: of rules in shadow, or of the
// other rules.
func labels(r *policy.Result, shadow bool) (all []string) {
	for i := range r.Rules {
		if one := &r.Rules[i]; one.Denied && one.Shadow == shadow {
			all = append(all, one.Label)
		}
	}
	return all
}

// appendWait writes a wait twice: under name as a Go duration or "never", and under
// name_ms in milliseconds, rounded up so that the wait is long enough, or null.
func appendWait(b []byte, name string, w stint.Wait) []byte {
	b = append(append(append(b, `,"`...), name...), `":"`...)
	d, ok := w.Duration()
	switch {
	case !ok:
		b = append(b, "never"...)
	case d == 0:
		b = append(b, "0s"...)
	default:
		b = append(b, d.String()...)
	}
	b = append(append(append(b, `","`...), name...), `_ms":`...)
	if !ok {
		return append(b, "null"...)
	}
	ms := d / time.Millisecond
	if d%time.Millisecond != 0 {
		ms++
	}
	return strconv.AppendInt(b, int64(ms), 10)
}
