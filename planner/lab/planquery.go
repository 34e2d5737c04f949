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

// A planQuery is the options of one request.
type planQuery struct {
	options  plan.Options
	name     string // the name of the log in the report
	arrivals bool   // answer with an Arrived instead of a report
	client   string // the client whose arrivals are wanted; "" for all clients
}

// longestText bounds a parameter in bytes.
const longestText = 1000

// mostNames bounds lists of names, such as the clients to ignore.
const mostNames = 100

// planParameters are the parameters that the page uses, and what each sets. They are fewer than the
// flags of stint plan.
var planParameters = map[string]struct {
	most int // how often it may occur
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

// readPlanQuery reads parameters strictly: one that is unknown, given twice or wrong is an error.
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
