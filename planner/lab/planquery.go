package lab

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
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

// planParameters are the parameters that there are, and what each does.
var planParameters = map[string]struct {
	most int // how often it may be given
	set  func(*planQuery, string) error
}{
	"key": {MaxLimits, func(q *planQuery, s string) error {
		q.options.Key = append(q.options.Key, strings.Split(s, ",")...)
		return nil
	}},
	"limit":      {MaxLimits, func(q *planQuery, s string) error { q.options.Limits = append(q.options.Limits, s); return nil }},
	"match":      {mostNames, func(q *planQuery, s string) error { q.options.Match = append(q.options.Match, s); return nil }},
	"ignore_key": {mostNames, func(q *planQuery, s string) error { q.options.IgnoreKeys = append(q.options.IgnoreKeys, s); return nil }},
	"exempt":     {mostNames, func(q *planQuery, s string) error { q.options.Exempt = append(q.options.Exempt, s); return nil }},
	"field":      {mostNames, (*planQuery).setField},
	"format":     {1, func(q *planQuery, s string) error { q.options.Format = s; return nil }},

	"trusted_proxies":  {mostNames, (*planQuery).setProxies},
	"client_ip_header": {1, func(q *planQuery, s string) error { q.options.Client.Header = s; return nil }},

	"cost":         {1, func(q *planQuery, s string) error { q.options.Cost = s; return nil }},
	"deny_at_most": {1, (*planQuery).setTarget},
	"margin":       {1, (*planQuery).setMargin},
	"ignore_top":   {1, (*planQuery).setIgnoreTop},
	"from":         {1, func(q *planQuery, s string) error { return setTime(&q.options.From, s) }},
	"to":           {1, func(q *planQuery, s string) error { return setTime(&q.options.To, s) }},
	"latest":       {1, func(q *planQuery, s string) error { return setTime(&q.options.Latest, s) }},
	"tz":           {1, (*planQuery).setZone},
	"name":         {1, func(q *planQuery, s string) error { q.name = s; return nil }},
	"arrivals":     {1, func(q *planQuery, s string) error { return setFlag(&q.arrivals, s) }},
	"client":       {1, func(q *planQuery, s string) error { q.client = s; return nil }},
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
	if client := q.options.Client; client.Header != "" && len(client.Trusted) == 0 {
		return nil, errors.New("client_ip_header: goes with trusted_proxies, which speak through it")
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

func (q *planQuery) setMargin(text string) error {
	number, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n >= 0 && n <= 1000) {
		return fmt.Errorf("%q: write a share such as 20%%", clip(text))
	}
	q.options.Margin = n / 100
	return nil
}

func (q *planQuery) setIgnoreTop(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	q.options.IgnoreTop = int(n)
	if err != nil {
		return fmt.Errorf("%q: want a number of clients", clip(text))
	}
	return nil
}

func (q *planQuery) setField(text string) error {
	name, field, ok := strings.Cut(text, "=")
	if !ok || name == "" || field == "" {
		return fmt.Errorf("%q: write NAME=FIELD, such as ip=client.address", clip(text))
	}
	if q.options.Fields == nil {
		q.options.Fields = make(map[string]string)
	}
	q.options.Fields[name] = field
	return nil
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

func (q *planQuery) setZone(text string) error {
	zone, err := time.LoadLocation(text)
	q.options.Zone = zone
	if err != nil {
		return fmt.Errorf("%q: want the name of a zone such as Europe/Paris", clip(text))
	}
	return nil
}

func setTime(to *time.Time, text string) (err error) {
	if *to, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("%q: want a time such as 2015-05-17T10:05:00Z", clip(text))
	}
	return nil
}

func setFlag(to *bool, text string) error {
	if text != "true" && text != "false" {
		return fmt.Errorf("%q: want true or false", clip(text))
	}
	*to = text == "true"
	return nil
}
