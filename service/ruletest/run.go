package ruletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
			got, err := r.play(ctx, rules, t.Start, r.when(n))
			if err != nil {
				return result, fmt.Errorf("line %d: %w", r.Line, err)
			}
			result.Requests++
			_, told := r.Expect["matched"]
			busy = busy || told || got.Refused != "" || len(got.Matched) > 0
			if idle == nil && r.Expect != nil {
				idle = r
			}
			if len(got.Differs) > 0 && !failed {
				failed = true
				result.fail(r, n, got.Differs)
			}
		}
	}
	if !busy && len(result.Failures) == 0 {
		result.fail(idle, 0, []Difference{{"matched", "some rule, by at least one request; [] if none is meant", "[]"}})
	}
	result.OK = len(result.Failures) == 0
	return result, nil
}

// fail notes that the nth request of an entry, from 0, is not answered as it must.
func (r *Result) fail(of *Request, nth int64, fields []Difference) {
	if len(r.Failures) == maxFailures {
		r.More++
		return
	}
	at := of.when(nth)
	r.Failures = append(r.Failures, Failure{Line: of.Line, Column: of.Column, At: at, When: at.String(), Nth: nth + 1, Of: of.Times, Attributes: of.Attributes, Fields: fields})
}

// when returns when the nth request of an entry comes, from 0.
func (r *Request) when(nth int64) time.Duration { return r.At + time.Duration(nth)*r.Every }

// An Answer is what became of a request, in the words of what tests expect.
type Answer struct {
	T string `json:"t"` // as lines have it
	*Decided
	// Refused is the attribute for which the request is refused: then nothing was
	// decided.
	Refused string `json:"refused,omitempty"`
	// Differs is what is not as the request expects.
	Differs []Difference `json:"differs,omitempty"`
}

// A Decided is what the rules said.
type Decided struct {
	Allowed    bool     `json:"allowed"`
	DeniedBy   []string `json:"denied_by"`
	RetryAfter string   `json:"retry_after"`
	Delay      string   `json:"delay"`
	Remaining  *int64   `json:"remaining,omitempty"` // nil where no limit holds
	Matched    []string `json:"matched"`
	ShadowedBy []string `json:"shadow_denied_by"`
}

// play asks the rules at a time from the start.
func (r *Request) play(ctx context.Context, rules *simulate.Rules, start time.Time, at time.Duration) (*Answer, error) {
	call := simulate.Call{At: start.Add(at).UnixNano(), Attributes: r, Cost: r.Cost, Lasts: r.Lasts}
	if r.Response != nil {
		call.Respond = func(p *policy.Pending) error { return r.Response.settle(ctx, p) }
	}
	var result *policy.Result
	err := r.fault
	if err == nil {
		result, err = rules.Decide(ctx, call)
	}
	a := &Answer{}
	if request, ok := errors.AsType[*policy.RequestError](err); ok {
		a.Refused, err = request.Attribute, nil
	} else if err == nil {
		a.Decided = decided(result)
	}
	if r.Expect != nil && err == nil {
		a.Differs = r.Expect.differ(a)
	}
	return a, err
}

// decided writes a result.
func decided(result *policy.Result) *Decided {
	d := &result.Decision
	all := &Decided{Allowed: d.Allowed, DeniedBy: []string{}, RetryAfter: d.RetryAfter.String(), Delay: d.Delay.String(), Matched: []string{}, ShadowedBy: []string{}}
	if result.Tightest >= 0 {
		remaining := d.Remaining
		all.Remaining = &remaining
	}
	for _, e := range result.ByRule {
		all.Matched = append(all.Matched, e.Rule)
		switch {
		case e.Denied && e.Shadow:
			all.ShadowedBy = append(all.ShadowedBy, e.Rule)
		case e.Denied:
			all.DeniedBy = append(all.DeniedBy, e.Rule)
		}
	}
	slices.Sort(all.DeniedBy)
	slices.Sort(all.ShadowedBy)
	return all
}

// settle charges what the response says. One that is compressed says nothing.
func (r *Response) settle(ctx context.Context, pending *policy.Pending) error {
	if err := pending.Header(ctx, r.Status, r.Headers); err != nil {
		return err
	}
	_, _ = pending.Write([]byte(r.Body))
	if err := pending.End(ctx, true); !errors.Is(err, policy.ErrCompressed) {
		return err
	}
	return nil
}

// differ returns in which fields what came is not what must. A wrong answer says, too, who
// denied it and until when, or how long it is delayed.
func (x Expectation) differ(a *Answer) (all []Difference) {
	note := func(field, want, got string) {
		if want != got {
			all = append(all, Difference{field, want, got})
		}
	}
	if a.Refused != "" {
		note("refused", cmp.Or(x["refused"], "false"), a.Refused)
		return all
	}
	for _, name := range [...]string{"allowed", "denied_by", "shadow_denied_by", "matched", "retry_after", "delay", "remaining", "refused"} {
		if want, ok := x[name]; ok {
			note(name, want, a.field(name))
		}
	}
	if len(all) == 0 {
		return nil
	}
	for _, name := range [...]string{"denied_by", "retry_after", "delay"} {
		tells := !a.Allowed
		if name == "delay" {
			tells = a.Delay != "0s"
		}
		if _, said := x[name]; tells && !said {
			note(name, "", a.field(name))
		}
	}
	return all
}

// field writes what was decided as expectations do.
func (d *Decided) field(name string) string {
	switch name {
	case "allowed":
		return strconv.FormatBool(d.Allowed)
	case "denied_by":
		return bracketed(d.DeniedBy)
	case "shadow_denied_by":
		return bracketed(d.ShadowedBy)
	case "matched":
		return bracketed(d.Matched)
	case "retry_after":
		return d.RetryAfter
	case "delay":
		return d.Delay
	case "remaining":
		if d.Remaining == nil {
			return "no limit"
		}
		return strconv.FormatInt(*d.Remaining, 10)
	}
	return "false" // refused
}

func bracketed(names []string) string { return "[" + strings.Join(names, ", ") + "]" }
