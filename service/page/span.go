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
	columns   = 360    // of all requests
	parts     = 60     // of each rule
	mostRules = 10_000 // rules with counts

	hourLong = 10 * time.Second  // a column of an hour
	dayLong  = 240 * time.Second // a column of a day
)

// A span is the counts of the last hour or day: requests in 360 columns, and the verdicts of each rule
// in 60. It takes 3 KB, and 480 bytes for each rule with a verdict.
type span struct {
	long int64 // of a column, in seconds; a rule's column is six of them

	mu     sync.Mutex
	column int64 // the present column, since the Unix epoch
	all    [columns]count
	rules  map[string]*[parts]count
	was    observe.Requests
	said   map[string]observe.RuleCounts // the last counts; nil before the first
}

func newSpan(column time.Duration) *span {
	return &span{long: int64(column / time.Second), rules: make(map[string]*[parts]count)}
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
func (s *span) add(now time.Time, requests observe.Requests, said map[string]observe.RuleCounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	if s.said != nil {
		s.all[s.column%columns].add(since(requests.Allowed, s.was.Allowed), since(requests.Denied, s.was.Denied))
		for rule, now := range said {
			was := s.said[rule]
			allowed, denied := since(now.Allowed, was.Allowed), since(now.Denied+now.Blocked, was.Denied+was.Blocked)
			if rule == "" || allowed+denied == 0 {
				continue
			}
			if one := s.of(rule); one != nil {
				one[s.part()%parts].add(allowed, denied)
			}
		}
	}
	s.was, s.said = requests, said
}

func (s *span) of(rule string) *[parts]count {
	one := s.rules[rule]
	if one == nil && len(s.rules) < mostRules {
		one = new([parts]count)
		s.rules[rule] = one
	}
	return one
}

// part returns the present column of rules.
func (s *span) part() int64 { return s.column / (columns / parts) }

// advance clears the columns that are reused since the last call, and drops rules without a verdict
// in the span.
func (s *span) advance(now time.Time) {
	was := s.part()
	column := max(now.Unix()/s.long, s.column)
	for k := range min(column-s.column, columns) {
		s.all[(column-k)%columns] = count{}
	}
	s.column = column
	passed := min(s.part()-was, parts)
	for rule, one := range s.rules {
		for k := range passed {
			one[(s.part()-k)%parts] = count{}
		}
		if passed > 0 && *one == ([parts]count{}) {
			delete(s.rules, rule)
		}
	}
}

// A History is the last hour or day as the page draws it, the oldest columns first. The last columns are
// not complete.
type History struct {
	// To is when the last column of Allowed and Denied ends. Step is how long each column is, in
	// seconds.
	To      time.Time `json:"to"`
	Step    int       `json:"step"`
	Allowed []uint32  `json:"allowed"`
	Denied  []uint32  `json:"denied"`
	// Rules are the rules that denied most, then those that decided most, in columns of six Steps.
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

func ruleHistory(name string, one *[parts]count, part int64) RuleHistory {
	r := RuleHistory{Rule: name, Allowed: make([]uint32, parts), Denied: make([]uint32, parts)}
	for i := range int64(parts) {
		c := one[(part+1+i)%parts]
		r.Allowed[i], r.Denied[i] = c.allowed, c.denied
	}
	return r
}

// history returns the span with up to n rules.
func (s *span) history(now time.Time, n int) *History {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	out := &History{To: time.Unix((s.column+1)*s.long, 0).UTC(), Step: int(s.long),
		Allowed: make([]uint32, columns), Denied: make([]uint32, columns), Rules: []RuleHistory{}}
	for i := range int64(columns) {
		c := s.all[(s.column+1+i)%columns]
		out.Allowed[i], out.Denied[i] = c.allowed, c.denied
	}
	type sum struct {
		rule            string
		allowed, denied uint64
	}
	sums := make([]sum, 0, len(s.rules))
	for rule, one := range s.rules {
		all := sum{rule: rule}
		for _, c := range one {
			all.allowed += uint64(c.allowed)
			all.denied += uint64(c.denied)
		}
		sums = append(sums, all)
	}
	slices.SortFunc(sums, func(a, b sum) int {
		return cmp.Or(cmp.Compare(b.denied, a.denied), cmp.Compare(b.allowed, a.allowed), cmp.Compare(a.rule, b.rule))
	})
	for _, one := range sums[:min(n, len(sums))] {
		out.Rules = append(out.Rules, ruleHistory(one.rule, s.rules[one.rule], s.part()))
	}
	out.Others = len(sums) - len(out.Rules)
	return out
}

// rule returns the span of one rule.
func (s *span) rule(now time.Time, name string) RuleHistory {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	one := s.rules[name]
	if one == nil {
		one = new([parts]count)
	}
	return ruleHistory(name, one, s.part())
}
