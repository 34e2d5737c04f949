package operate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/rulesapi"
)

// A RuleView is one rule in force: its text, its meaning, and its effect.
type RuleView struct {
	RuleCount
	Version Version `json:"version"`
	// Line is where the rule begins in the document, Text is its lines, and Words are sentences
	// about its meaning.
	Line  int      `json:"line"`
	Text  string   `json:"text"`
	Words []string `json:"words"`
	// InFlight is how many units are in flight in this process; nil for a rule without a limit in
	// flight.
	InFlight *int64 `json:"in_flight,omitzero"`
	// Key is the attributes in the keys of the rule.
	Key []string `json:"key"`
	// DeniedKeys and Nearest are keys of the rule.
	DeniedKeys []KeyCount `json:"denied_keys"`
	Nearest    []KeyPart  `json:"nearest"`
}

// ruleView answers GET /v1/rule.
func (s *Service) ruleView(r *rulesapi.Request) (int, any, error) {
	name := r.Query.Get("rule")
	n, err := many(r, pageSize)
	if err != nil {
		return 0, nil, err
	}
	f := s.o.Source.File()
	file := f.Rules.File().Rules()
	at := slices.IndexFunc(file, func(one *rulesfile.Rule) bool { return one.Name == name })
	if at < 0 {
		return 0, nil, &rulesapi.InputError{Field: "rule", Err: fmt.Errorf("%w in force: %q", policy.ErrNoRule, name)}
	}
	next := 0
	if at+1 < len(file) {
		next = file[at+1].Line
	}
	v := &RuleView{RuleCount: s.rates.rules(s.o.Observer.CountsByRule(), []string{name})[0], Version: s.version(r.Clear()), Line: file[at].Line,
		Text: ruleText(f.Document, file[at].Line, next), Words: ruleWords(file[at]), Key: []string{}}
	if private := rulesapi.Private(file[at]); private != "" && !r.Clear() {
		v.Text, v.Words = "", []string{private}
	}
	if units, ok := s.o.Source.Policy().InFlight()[name]; ok {
		v.InFlight = &units
	}
	for _, a := range file[at].Key {
		v.Key = append(v.Key, a.Name)
	}
	v.DeniedKeys = slices.DeleteFunc(s.denials(maxPage*2, r.Clear()), func(k KeyCount) bool { return k.Rule != name })
	v.Nearest = slices.DeleteFunc(s.nearest(maxPage*2, "", r.Clear()), func(k KeyPart) bool { return k.Rule != name })
	v.DeniedKeys, v.Nearest = v.DeniedKeys[:min(n, len(v.DeniedKeys))], v.Nearest[:min(n, len(v.Nearest))]
	return http.StatusOK, v, nil
}

// A RuleLine is a rule in a list.
type RuleLine struct {
	RuleCount
	Line   int      `json:"line"`
	Key    []string `json:"key"`
	Limits []string `json:"limits"`
	Shadow bool     `json:"shadow,omitzero"`
}

// ruleList answers GET /v1/rules/list: it lists the rules in force, in order, page by page, whose
// names contain a text.
func (s *Service) ruleList(r *rulesapi.Request) (int, any, error) {
	n, err := many(r, 100)
	if err != nil {
		return 0, nil, err
	}
	from := 0
	if text := r.Query.Get("after"); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return 0, nil, &rulesapi.InputError{Field: "after", Err: errors.New("want the field next of the page before")}
		}
	}
	answer := struct {
		Rules []RuleLine `json:"rules"`
		// Total is how many rules there are, Found how many contain the text.
		Total int    `json:"total"`
		Found int    `json:"found"`
		Next  string `json:"next,omitzero"`
	}{Rules: []RuleLine{}}
	all := s.o.Source.Policy().Rules().File().Rules()
	answer.Total = len(all)
	part := strings.ToLower(r.Query.Get("q"))
	all = slices.DeleteFunc(slices.Clone(all), func(one *rulesfile.Rule) bool { return !strings.Contains(strings.ToLower(one.Name), part) })
	answer.Found = len(all)
	all = all[min(from, len(all)):]
	if len(all) > n {
		all, answer.Next = all[:n], strconv.Itoa(from+n)
	}
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = one.Name
	}
	counts := make(map[string]RuleCount, len(all))
	for _, c := range s.rates.rules(s.o.Observer.CountsByRule(), names) {
		counts[c.Rule] = c
	}
	for _, one := range all {
		answer.Rules = append(answer.Rules, lineOf(one, counts[one.Name]))
	}
	return http.StatusOK, answer, nil
}

func lineOf(one *rulesfile.Rule, count RuleCount) RuleLine {
	l := RuleLine{RuleCount: count, Line: one.Line, Key: []string{}, Limits: []string{}, Shadow: one.Shadow}
	for _, a := range one.Key {
		l.Key = append(l.Key, a.Name)
	}
	switch {
	case one.Own == nil:
		l.Limits = append(l.Limits, "by "+one.Tiers.By.Name)
	case one.Own.Action != "":
		l.Limits = append(l.Limits, one.Own.Action)
	default:
		for _, limit := range one.Own.Limits {
			l.Limits = append(l.Limits, limit.String())
		}
	}
	return l
}
