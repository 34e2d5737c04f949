package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// promised returns how many units a limit's text lets one expect within a
// period: the count, and the burst on top for a bucket.
func promised(l stint.Limit) int64 {
	switch a := l.Algorithm(); {
	case !l.InFlight() && (a == meter.GCRA || a == meter.TokenBucketInterval):
		return plus(l.Count(), l.Burst())
	}
	return l.Count()
}

// story says in a sentence or two what there is to see: which limit let more
// through in a period than its text says, and what the others did.
func (a *Answer) story(t *traffic) string {
	sent := fmt.Sprintf("%s request%s", grouped(int64(a.Requests)), plural(a.Requests))
	lead := "The same " + sent
	if len(a.Rows) == 1 {
		lead = strings.ToUpper(sent[:1]) + sent[1:]
	}
	if t.retry != 0 {
		lead = "A client with " + sent + " to send, again until they pass"
	}
	names := a.names()
	var broken, kept []int
	denied := 0
	for i, row := range a.Rows {
		denied += row.Denied
		if row.Most > row.Promised {
			broken = append(broken, i)
		} else {
			kept = append(kept, i)
		}
	}
	slices.SortStableFunc(broken, func(i, j int) int {
		x, y := a.Rows[i], a.Rows[j]
		return cmp.Compare(float64(y.Most)/float64(y.Promised), float64(x.Most)/float64(x.Promised))
	})
	switch {
	case len(broken) > 0:
		return lead + ": " + a.told(names, broken, kept)
	case denied == 0:
		return lead + ": none is denied. A lower limit, or more requests, would show more."
	}
	return lead + ": " + a.compared(names)
}

// told says which limits broke what they promise, the worst first, and how the
// others fared.
func (a *Answer) told(names []string, broken, kept []int) string {
	var parts []string
	first := a.Rows[broken[0]]
	for n, i := range broken {
		row := a.Rows[i]
		switch {
		case n == 0:
			parts = append(parts, fmt.Sprintf("%s let %s through in %v where %s promised", names[i], row.amount(row.Most), time.Duration(row.MostIn), row.promise()))
		case row.Promised == first.Promised && row.MostIn == first.MostIn:
			parts = append(parts, fmt.Sprintf("%s let %s", names[i], grouped(row.Most)))
		default:
			parts = append(parts, fmt.Sprintf("%s let %s in %v where %s promised", names[i], grouped(row.Most), time.Duration(row.MostIn), row.promise()))
		}
	}
	text := strings.Join(parts, ", ")
	for n, i := range kept {
		row, joint := a.Rows[i], ", "
		if n == 0 {
			joint = "; at most "
		}
		text += fmt.Sprintf("%s%s", joint, grouped(row.Most))
		if row.MostIn != first.MostIn {
			text += fmt.Sprintf(" in %v", time.Duration(row.MostIn))
		}
		text += " by " + names[i]
	}
	return text + "."
}

// compared says of limits that all kept their word who denied most.
func (a *Answer) compared(names []string) string {
	if len(a.Rows) == 1 {
		row := a.Rows[0]
		return fmt.Sprintf("%s denies %s, and lets at most %s through in any %v.", names[0], grouped(int64(row.Denied)), row.amount(row.Most), time.Duration(row.MostIn))
	}
	least, most := 0, 0
	for i, row := range a.Rows {
		if row.Denied < a.Rows[least].Denied {
			least = i
		}
		if row.Denied > a.Rows[most].Denied {
			most = i
		}
	}
	if least == most {
		return fmt.Sprintf("each limit keeps what it promises and denies %s.", grouped(int64(a.Rows[0].Denied)))
	}
	return fmt.Sprintf("each limit keeps what it promises; %s denies the most, %s, and %s the fewest, %s.",
		names[most], grouped(int64(a.Rows[most].Denied)), names[least], grouped(int64(a.Rows[least].Denied)))
}

// names are what the story calls the rows: by their algorithm where that tells
// them apart, else by their text.
func (a *Answer) names() []string {
	names, seen := make([]string, len(a.Rows)), make(map[string]bool)
	for i, row := range a.Rows {
		if row.Shared != nil {
			names[i] = row.Shared.name()
			continue
		}
		if names[i] = row.Limit; !row.limit.InFlight() {
			names[i] = "the " + strings.ToLower(kindOf(row.limit).Title)
		}
		if seen[names[i]] {
			for j, other := range a.Rows {
				if other.Shared == nil {
					names[j] = other.Limit
				} else {
					names[j] = other.Shared.name()
				}
			}
			break
		}
		seen[names[i]] = true
	}
	return names
}

// kindOf returns the explanation of a limit's kind.
func kindOf(l stint.Limit) Kind {
	return kinds[slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == l.Algorithm().String() })]
}

// amount writes units: as such where requests have costs of their own.
func (row *Row) amount(n int64) string {
	if slices.ContainsFunc(row.sent.cost, func(c int64) bool { return c != 1 }) {
		return grouped(n) + " unit" + plural(int(min(n, 2)))
	}
	return grouped(n)
}

// promise writes what the limit's text says of a period.
func (row *Row) promise() string {
	if row.Promised == row.limit.Count() {
		return grouped(row.Promised) + " " + were(row.Promised)
	}
	return fmt.Sprintf("%s and a burst of %s were", grouped(row.limit.Count()), grouped(row.limit.Burst()))
}

func were(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
