package page

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint/service/observe"
)

const (
	columns   = 360 // each of columnLong; together an hour
	minutes   = 60
	mostRules = 10_000 // rules with counts of each minute

	columnLong = 10 * time.Second
)

// An hour is the counts of the last hour: requests in columns of ten seconds, and the verdicts of
// each rule in columns of a minute. It takes 3 KB, and 480 bytes for each rule with a verdict.
type hour struct {
	mu     sync.Mutex
	column int64 // the present column, since the Unix epoch
	minute int64
	all    [columns]count
	rules  map[string]*[minutes]count
	was    observe.Requests
	said   map[string]observe.RuleCounts // the last counts; nil before the first
}

type count struct{ allowed, denied uint32 }

func (c *count) add(allowed, denied uint64) {
	c.allowed = uint32(min(uint64(c.allowed)+allowed, math.MaxUint32))
	c.denied = uint32(min(uint64(c.denied)+denied, math.MaxUint32))
}

// since returns the increase of a counter. If the counter was reset, that is all of it.
func since(now, was uint64) uint64 {
	if now < was {
		return now
	}
	return now - was
}

// add records the counts until now.
func (h *hour) add(now time.Time, requests observe.Requests, said map[string]observe.RuleCounts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(now)
	if h.said != nil {
		h.all[h.column%columns].add(since(requests.Allowed, h.was.Allowed), since(requests.Denied, h.was.Denied))
		for rule, s := range said {
			was := h.said[rule]
			allowed, denied := since(s.Allowed, was.Allowed), since(s.Denied+s.Blocked, was.Denied+was.Blocked)
			if rule == "" || allowed+denied == 0 {
				continue
			}
			if one := h.of(rule); one != nil {
				one[h.minute%minutes].add(allowed, denied)
			}
		}
	}
	h.was, h.said = requests, said
}

func (h *hour) of(rule string) *[minutes]count {
	one := h.rules[rule]
	if one == nil && len(h.rules) < mostRules {
		if h.rules == nil {
			h.rules = make(map[string]*[minutes]count)
		}
		one = new([minutes]count)
		h.rules[rule] = one
	}
	return one
}

// advance clears the columns that are reused since the last call, and drops rules without a verdict
// in the last hour.
func (h *hour) advance(now time.Time) {
	column, minute := now.Unix()/int64(columnLong/time.Second), now.Unix()/60
	for k := range min(max(column-h.column, 0), columns) {
		h.all[(column-k)%columns] = count{}
	}
	passed := min(max(minute-h.minute, 0), minutes)
	for rule, one := range h.rules {
		for k := range passed {
			one[(minute-k)%minutes] = count{}
		}
		if passed > 0 && *one == ([minutes]count{}) {
			delete(h.rules, rule)
		}
	}
	h.column, h.minute = max(column, h.column), max(minute, h.minute)
}

// A History is the last hour as the page draws it, the oldest columns first. The last columns are
// not complete.
type History struct {
	// To is when the last column of Allowed and Denied ends. Step is how long each column is, in
	// seconds.
	To      time.Time `json:"to"`
	Step    int       `json:"step"`
	Allowed []uint32  `json:"allowed"`
	Denied  []uint32  `json:"denied"`
	// Rules are the rules that denied most, then those that decided most, by minutes.
	Rules []RuleHistory `json:"rules"`
	// Others is how many further rules decided something.
	Others int `json:"others"`
}

// A RuleHistory is the verdicts of one rule.
type RuleHistory struct {
	Rule    string   `json:"rule"`
	Allowed []uint32 `json:"allowed"`
	Denied  []uint32 `json:"denied"`
}

func ruleHistory(name string, one *[minutes]count, minute int64) RuleHistory {
	r := RuleHistory{Rule: name, Allowed: make([]uint32, minutes), Denied: make([]uint32, minutes)}
	for i := range int64(minutes) {
		c := one[(minute+1+i)%minutes]
		r.Allowed[i], r.Denied[i] = c.allowed, c.denied
	}
	return r
}

// history returns the hour with up to n rules.
func (h *hour) history(now time.Time, n int) *History {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(now)
	out := &History{To: time.Unix((h.column+1)*int64(columnLong/time.Second), 0).UTC(), Step: int(columnLong / time.Second),
		Allowed: make([]uint32, columns), Denied: make([]uint32, columns), Rules: []RuleHistory{}}
	for i := range int64(columns) {
		c := h.all[(h.column+1+i)%columns]
		out.Allowed[i], out.Denied[i] = c.allowed, c.denied
	}
	type sum struct {
		rule            string
		allowed, denied uint64
	}
	sums := make([]sum, 0, len(h.rules))
	for rule, one := range h.rules {
		s := sum{rule: rule}
		for _, c := range one {
			s.allowed += uint64(c.allowed)
			s.denied += uint64(c.denied)
		}
		sums = append(sums, s)
	}
	slices.SortFunc(sums, func(a, b sum) int {
		return cmp.Or(cmp.Compare(b.denied, a.denied), cmp.Compare(b.allowed, a.allowed), cmp.Compare(a.rule, b.rule))
	})
	for _, s := range sums[:min(n, len(sums))] {
		out.Rules = append(out.Rules, ruleHistory(s.rule, h.rules[s.rule], h.minute))
	}
	out.Others = len(sums) - len(out.Rules)
	return out
}

// rule returns the hour of one rule.
func (h *hour) rule(now time.Time, name string) RuleHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(now)
	one := h.rules[name]
	if one == nil {
		one = new([minutes]count)
	}
	return ruleHistory(name, one, h.minute)
}
