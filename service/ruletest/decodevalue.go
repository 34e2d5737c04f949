package ruletest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// epochTime is a moment that the clock of a store can tell.
type epochTime struct{ time.Time }

// epoch is what 0s is unless a file says so.
var epoch = epochTime{time.Unix(0, 0).UTC()}

// latest is the last moment of the clock.
var latest = time.Unix(0, math.MaxInt64)

// instant reads an RFC 3339 time that the clock can tell.
func (d *decoder) instant(n *rulesfile.Node) epochTime {
	t, err := time.Parse(time.RFC3339, n.Value)
	switch {
	case n.Kind != rulesfile.String || err != nil:
		d.fail(n, "such as 2026-03-29T00:00:00+01:00", "want a time with its zone")
		return epoch
	case t.Before(epoch.Time) || t.After(latest):
		d.fail(n, "the clock goes from 1970 to 2262", "%s is outside of what the clock can tell", n.Value)
		return epoch
	}
	return epochTime{t}
}

// at reads a time since the start, or one of the calendar.
func (d *decoder) at(n *rulesfile.Node, start time.Time) time.Duration {
	if n.Kind == rulesfile.String && len(n.Value) > 10 && n.Value[4] == '-' {
		t := d.instant(n)
		if t.Before(start) {
			d.fail(n, "0s is "+start.Format(time.RFC3339Nano)+": start: says otherwise", "%s is before the test starts", n.Value)
			return 0
		}
		return t.Sub(start)
	}
	return d.duration(n)
}

// duration reads a duration from 0s.
func (d *decoder) duration(n *rulesfile.Node) time.Duration {
	const hint = "such as 0s, 1.5s, 10m or 24h"
	if n.Kind == rulesfile.Number && strings.Trim(n.Value, "0.") == "" {
		return 0
	}
	v, err := time.ParseDuration(n.Value)
	switch {
	case n.Kind == rulesfile.Number:
		d.fail(n, hint, "%s has no unit", n.Value)
	case n.Kind != rulesfile.String || err != nil:
		d.fail(n, hint, "want a duration")
	case v < 0:
		d.fail(n, "times go from 0s, where the test starts", "%s is below zero", n.Value)
	default:
		return v
	}
	return 0
}

// integer reads a whole number within bounds.
func (d *decoder) integer(n *rulesfile.Node, least, most int64) int64 {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	switch {
	case n.Kind != rulesfile.Number || err != nil:
		d.fail(n, fmt.Sprintf("such as %d", max(least, 1)), "want a whole number")
	case v < least || v > most:
		d.fail(n, fmt.Sprintf("from %d to %d", least, most), "%d is out of bounds", v)
	default:
		return v
	}
	return least
}

func (d *decoder) text(n *rulesfile.Node, hint string) string {
	if n.Kind == rulesfile.Number || n.Kind == rulesfile.Bool {
		return n.Value // as written
	}
	d.want(n, rulesfile.String, hint)
	return n.Value
}

// expect reads what must become of a request.
func (d *decoder) expect(n *rulesfile.Node) Expectation {
	x := Expectation{}
	fields := d.fields(n, expectFields, "such as {allowed: false, denied_by: [login], retry_after: 59s}")
	if fields != nil && len(fields) == 0 && len(n.Fields) == 0 {
		d.fail(n, "such as {allowed: true}; or leave expect out", "nothing is expected")
	}
	for _, name := range expectFields {
		if n := fields[name]; n != nil {
			d.in("."+name, func() { x[name] = d.expected(n, name) })
		}
	}
	expects := func(name, unless string) bool { return x[name] != "" && x[name] != unless }
	denied, delayed := expects("denied_by", "[]") || expects("retry_after", "0s"), expects("delay", "0s")
	switch {
	case len(d.errs) > 0:
	case x["allowed"] == "true" && denied:
		d.fail(n, "a request that is allowed has no denied_by and a retry_after of 0s", "both allowed and denied are expected")
	case delayed && (x["allowed"] == "false" || denied):
		d.fail(n, "a request that is denied is not delayed: it has a retry_after", "both a delay and a denial are expected")
	case expects("refused", "false") && len(fields) > 1:
		d.fail(n, "a request that is refused is not decided on: leave the rest out", "both a refusal and a decision are expected")
	}
	return x
}

// expected reads a field, and writes it as answers do.
func (d *decoder) expected(n *rulesfile.Node, name string) string {
	switch name {
	case "denied_by", "shadow_denied_by":
		return bracketed(slices.Sorted(slices.Values(d.ruleNames(n))))
	case "matched":
		return bracketed(d.ruleNames(n))
	case "retry_after", "delay":
		if name == "retry_after" && n.Value == "never" {
			return n.Value
		}
		return d.duration(n).String()
	case "remaining":
		return strconv.FormatInt(d.integer(n, 0, math.MaxInt64), 10)
	case "refused":
		return cmp.Or(d.text(n, "the attribute for which it is refused, such as path"), "false")
	}
	d.want(n, rulesfile.Bool, "true or false") // allowed
	return strings.ToLower(n.Value)
}

// ruleNames reads names of rules, one or a list.
func (d *decoder) ruleNames(n *rulesfile.Node) []string {
	items := n.Items
	if n.Kind != rulesfile.List {
		items = []*rulesfile.Node{n}
	}
	known := d.file.Rules.Rules.Names()
	names := []string{}
	for _, item := range items {
		name := d.text(item, "the name of a rule, or a list of names")
		switch {
		case !slices.Contains(known, name):
			d.fail(item, "there are "+shortList(known), "no rule %q", name)
		case slices.Contains(names, name):
			d.fail(item, "", "rule %q twice", name)
		}
		names = append(names, name)
	}
	return names
}

// shortList writes the first of many names.
func shortList(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// last returns when the last of the requests comes.
func (r *Request) last() time.Duration {
	return r.At + time.Duration(r.Times-1)*r.Every
}

// fits reports whether the clock can tell all times of the requests.
func (r *Request) fits(start time.Time) bool {
	room := latest.Sub(start) - r.At // start is not before 1970
	return room >= 0 && (r.Every == 0 || r.Times-1 <= int64(room/r.Every))
}
