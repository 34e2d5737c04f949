package ruletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/simulate"
)

// maxFailures is how many failed requests of one test are reported.
const maxFailures = 10

// A Result is what became of one test.
type Result struct {
	Name     string    `json:"name"`
	Line     int       `json:"line"`
	OK       bool      `json:"ok"`
	Requests int64     `json:"requests"`
	Failures []Failure `json:"failures"`
	// More is how many further entries of the test were not as expected.
	More int `json:"more,omitzero"`
}

// A Failure is a request that was not answered as expected: the first of its
// entry.
type Failure struct {
	Line   int           `json:"line"`
	Column int           `json:"column"`
	At     time.Duration `json:"-"`
	When   string        `json:"t"`
	// Nth is which of how many of the entry, from 1.
	Nth        int64             `json:"nth"`
	Of         int64             `json:"of"`
	Attributes map[string]string `json:"attributes"`
	// Fields are what differs, with what the rules said beside it.
	Fields []Difference `json:"differs"`
}

// A Difference is a field of the expectation that is not what came.
type Difference struct {
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}

// open binds the rules to an empty store in memory.
func (f *File) open(start int64) (*simulate.Rules, error) {
	return simulate.NewRules(start, 0, func(store *memstore.Store) (*policy.Policy, error) {
		// The secret is for rules with hash_key: a test says nothing of keys.
		return policy.New(store, f.Rules.Rules, policy.Options{Secret: make([]byte, 16)})
	})
}

// Run runs all tests. The error is that of ctx, or of a store that cannot
// decide.
func (f *File) Run(ctx context.Context) ([]Result, error) {
	all := make([]Result, 0, len(f.Tests))
	for i := range f.Tests {
		r, err := f.run(ctx, &f.Tests[i])
		if err != nil {
			return all, fmt.Errorf("%s: %w", f.Name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// run runs one test.
func (f *File) run(ctx context.Context, t *Test) (Result, error) {
	result := Result{Name: t.Name, Line: t.Line, Failures: []Failure{}}
	rules, err := f.open(t.Start.UnixNano())
	if err != nil {
		return result, err
	}
	defer rules.Close()
	var idle *Request // that expects something, while no rule has anything to say
	busy := false
	for i := range t.Requests {
		r := &t.Requests[i]
		failed := false
		for n := range r.Times {
			if n&1023 == 0 && ctx.Err() != nil {
				return result, ctx.Err()
			}
			at := r.At + time.Duration(n)*r.Every
			got, err := r.play(ctx, rules, t.Start.Add(at).UnixNano())
			if err != nil {
				return result, fmt.Errorf("line %d: %w", r.Line, err)
			}
			result.Requests++
			busy = busy || got.refused != "" || len(got.held) > 0 || r.Expect != nil && r.Expect.Matched != nil
			if idle == nil && r.Expect != nil {
				idle = r
			}
			if r.Expect == nil || failed {
				continue
			}
			if fields := r.Expect.differ(got); len(fields) > 0 {
				failed = true
				result.fail(Failure{Line: r.Line, Column: r.Column, At: at, When: at.String(), Nth: n + 1, Of: r.Times, Attributes: r.Attributes, Fields: fields})
			}
		}
	}
	if !busy && len(result.Failures) == 0 {
		result.fail(Failure{Line: idle.Line, Column: idle.Column, At: idle.At, When: idle.At.String(), Nth: 1, Of: idle.Times, Attributes: idle.Attributes,
			Fields: []Difference{{"matched", "some rule, by at least one request; [] if none is meant", "[]"}}})
	}
	result.OK = len(result.Failures) == 0
	return result, nil
}

func (r *Result) fail(f Failure) {
	if len(r.Failures) == maxFailures {
		r.More++
		return
	}
	r.Failures = append(r.Failures, f)
}

// An outcome is what became of a request.
type outcome struct {
	allowed              bool
	denied, shadow, held []string
	retryAfter           stint.Wait
	delay                time.Duration
	remaining            int64
	limited              bool   // a limit answered, so that remaining says something
	refused              string // the attribute; nothing else holds then
}

// play asks the rules at a moment.
func (r *Request) play(ctx context.Context, rules *simulate.Rules, now int64) (*outcome, error) {
	call := simulate.Call{At: now, Attributes: r, Cost: r.Cost, Lasts: r.Lasts}
	if r.Response != nil {
		call.Respond = func(p *policy.Pending) error { return r.Response.settle(ctx, p) }
	}
	var answer *policy.Result
	err := r.fault
	if err == nil {
		answer, err = rules.Decide(ctx, call)
	}
	if request, ok := errors.AsType[*policy.RequestError](err); ok {
		return &outcome{refused: request.Attribute}, nil
	}
	if err != nil {
		return nil, err
	}
	d := &answer.Decision
	o := &outcome{allowed: d.Allowed, retryAfter: d.RetryAfter, delay: d.Delay, remaining: d.Remaining, limited: answer.Tightest >= 0}
	for _, e := range answer.ByRule {
		o.held = append(o.held, e.Rule)
		switch {
		case e.Denied && e.Shadow:
			o.shadow = append(o.shadow, e.Rule)
		case e.Denied:
			o.denied = append(o.denied, e.Rule)
		}
	}
	slices.Sort(o.denied)
	slices.Sort(o.shadow)
	return o, nil
}

// settle charges what the response says. One that is compressed says nothing, and what ends
// later than its charge is held stands as charged, as everywhere.
func (r *Response) settle(ctx context.Context, pending *policy.Pending) error {
	pending.Header(r.Status, r.Headers)
	_, _ = pending.Write([]byte(r.Body))
	if err := pending.End(ctx, true, false); !errors.Is(err, stint.ErrReservation) && !errors.Is(err, policy.ErrCompressed) {
		return err
	}
	return nil
}

// differ returns in which fields what came is not what must.
func (x *Expectation) differ(o *outcome) (all []Difference) {
	note := func(field, want, got string) {
		if want != got {
			all = append(all, Difference{field, want, got})
		}
	}
	if o.refused != "" {
		want := "false"
		if x.Refused != nil && *x.Refused != "" {
			want = *x.Refused
		}
		note("refused", want, o.refused)
		return all
	}
	if x.Allowed != nil {
		note("allowed", fmt.Sprint(*x.Allowed), fmt.Sprint(o.allowed))
	}
	for _, list := range []struct {
		field string
		want  *[]string
		got   []string
	}{{"denied_by", x.DeniedBy, o.denied}, {"shadow_denied_by", x.ShadowedBy, o.shadow}, {"matched", x.Matched, o.held}} {
		if list.want != nil {
			note(list.field, bracketed(*list.want), bracketed(list.got))
		}
	}
	if x.RetryAfter != nil {
		note("retry_after", x.RetryAfter.String(), o.retryAfter.String())
	}
	if x.Delay != nil {
		note("delay", x.Delay.String(), o.delay.String())
	}
	if x.Remaining != nil {
		got := "no limit"
		if o.limited {
			got = fmt.Sprint(o.remaining)
		}
		note("remaining", fmt.Sprint(*x.Remaining), got)
	}
	if x.Refused != nil && *x.Refused != "" {
		note("refused", *x.Refused, "false")
	}
	if len(all) > 0 {
		all = o.explain(x, all)
	}
	return all
}

// explain adds to a wrong answer who denied it and until when, or how long it
// is delayed, where the expectation does not say.
func (o *outcome) explain(x *Expectation, all []Difference) []Difference {
	if !o.allowed && x.DeniedBy == nil {
		all = append(all, Difference{Field: "denied_by", Got: bracketed(o.denied)})
	}
	if !o.allowed && x.RetryAfter == nil {
		all = append(all, Difference{Field: "retry_after", Got: o.retryAfter.String()})
	}
	if o.delay > 0 && x.Delay == nil {
		all = append(all, Difference{Field: "delay", Got: o.delay.String()})
	}
	return all
}

func bracketed(names []string) string { return "[" + strings.Join(names, ", ") + "]" }
