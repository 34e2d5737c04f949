package lab

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/match"

	"github.com/stint-dev/stint/planner/plan"
)

// A planQuery is what is asked of a log.
type planQuery struct {
	options  plan.Options
	name     string // of the log, for the report
	arrivals bool   // wanted in place of a report
	client   string // whose, "" for everyone's
}

// longestText bounds a parameter in bytes.
const longestText = 1000

// mostNames is how many clients may be left out, for one.
const mostNames = 100

// planParameters are those that the page asks with, and what each does: stint plan has
// more flags.
var planParameters = map[string]struct {
	most int // how often it may be given
	set  func(*planQuery, string) error
}{
	"key": {MaxLimits, func(q *planQuery, s string) error {
		q.options.Key = append(q.options.Key, strings.Split(s, ",")...)
		return nil
	}},
	"limit":           {MaxLimits, func(q *planQuery, s string) error { q.options.Limits = append(q.options.Limits, s); return nil }},
	"ignore_key":      {mostNames, func(q *planQuery, s string) error { q.options.IgnoreKeys = append(q.options.IgnoreKeys, s); return nil }},
	"trusted_proxies": {mostNames, (*planQuery).setProxies},
	"deny_at_most":    {1, (*planQuery).setTarget},
	"latest":          {1, (*planQuery).setLatest},
	"name":            {1, func(q *planQuery, s string) error { q.name = s; return nil }},
	"arrivals":        {1, (*planQuery).setArrivals},
	"client":          {1, func(q *planQuery, s string) error { q.client = s; return nil }},
}

// readPlanQuery reads parameters strictly: what is unknown, given twice or
// wrong is an error.
func readPlanQuery(values url.Values) (*planQuery, error) {
	q := &planQuery{name: "access.log", options: plan.Options{Margin: 0.2}}
	for name, all := range values {
		p, ok := planParameters[name]
		switch {
		case !ok:
			return nil, fmt.Errorf("%q: there is no such parameter", clip(name))
		case len(all) > p.most:
			return nil, fmt.Errorf("%s: given %d times, want at most %d", name, len(all), p.most)
		}
		for _, text := range all {
			if text == "" || len(text) > longestText {
				return nil, fmt.Errorf("%s: want from 1 to %d bytes", name, longestText)
			}
			if err := p.set(q, text); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if q.options.Choose == nil && len(q.options.Limits) == 0 {
		q.options.Choose = &plan.DefaultTarget
	}
	if err := q.options.Check(); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "stint: "))
	}
	return q, nil
}

func (q *planQuery) setTarget(text string) error {
	t, err := plan.ParseTarget(text)
	q.options.Choose = &t
	return err
}

func (q *planQuery) setProxies(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		p, reason, hint := match.ParseNet(strings.TrimSpace(one))
		if reason != "" {
			return fmt.Errorf("%q: %s; %s", clip(one), reason, hint)
		}
		q.options.Client.Trusted = append(q.options.Client.Trusted, p)
	}
	return nil
}

func (q *planQuery) setLatest(text string) (err error) {
	if q.options.Latest, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("%q: want a time such as 2015-05-17T10:05:00Z", clip(text))
	}
	return nil
}

func (q *planQuery) setArrivals(text string) error {
	if text != "true" && text != "false" {
		return fmt.Errorf("%q: want true or false", clip(text))
	}
	q.arrivals = text == "true"
	return nil
}
