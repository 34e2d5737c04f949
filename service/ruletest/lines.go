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
			last = r.when(i)
			a, err := r.play(ctx, asked, epoch.Time, last)
			if err != nil {
				return err
			}
			a.T, ok = last.String(), ok && len(a.Differs) == 0
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
