package ruletest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/service/rules"
)

// An Answer is what became of a request, in the words of what tests expect.
type Answer struct {
	T string `json:"t"`
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

// Lines decides requests of the same fields as those of test files, one a line as
// JSON, in order of their times, and writes an answer for each. It reports whether all
// are as they expect.
func Lines(ctx context.Context, file *rules.File, in io.Reader, out io.Writer) (ok bool, err error) {
	test := &File{Name: "requests", Rules: file}
	asked, err := test.open(0)
	if err != nil {
		return false, err
	}
	defer asked.Close()
	to, ok, last := json.NewEncoder(out), true, time.Duration(0)
	err = simulate.EachLine(in, func(_ int, text []byte) error {
		r, err := test.line(text)
		if err == nil && r.At < last {
			err = fmt.Errorf("t: %v is before the request above", r.At)
		}
		if err != nil {
			return err
		}
		for i := range r.Times {
			last = r.At + time.Duration(i)*r.Every
			got, err := r.play(ctx, asked, int64(last))
			if err != nil {
				return err
			}
			a := got.answer(last)
			if r.Expect != nil {
				a.Differs = r.Expect.differ(got)
			}
			ok = ok && len(a.Differs) == 0
			if err := errors.Join(ctx.Err(), to.Encode(a)); err != nil {
				return err
			}
		}
		return nil
	})
	return ok && err == nil, err
}

// line reads one request.
func (f *File) line(text []byte) (*Request, error) {
	root, err := rules.ReadTree("", text)
	if err != nil {
		return nil, err
	}
	d := &decoder{file: f}
	r := d.request(root, &Test{Start: epoch.Time})
	if len(d.errs) > 0 {
		return nil, d.errs[0]
	}
	return &r, nil
}

// answer writes an outcome for programs.
func (o *outcome) answer(at time.Duration) *Answer {
	a := &Answer{T: at.String(), Refused: o.refused}
	if o.refused != "" {
		return a
	}
	list := func(names []string) []string { return append([]string{}, names...) }
	a.Decided = &Decided{
		Allowed: o.allowed, DeniedBy: list(o.denied), RetryAfter: o.retryAfter.String(), Delay: o.delay.String(),
		Matched: list(o.held), ShadowedBy: list(o.shadow),
	}
	if o.limited {
		a.Remaining = &o.remaining
	}
	return a
}
