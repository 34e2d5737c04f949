package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// A Mismatch is a field of an answer that differs from what a vector wants.
type Mismatch struct {
	Line  int    // from 1
	Field string // the field of the answer
	Got   string // as JSON; empty when the field was not there
	Want  string // as JSON
}

// String returns "line 3: remaining is 4, want 5".
func (m Mismatch) String() string {
	got := m.Got
	if got == "" {
		got = "not there"
	}
	return fmt.Sprintf("line %d: %s is %s, want %s", m.Line, m.Field, got, m.Want)
}

// RunVectors runs the operations of a file of vectors on an empty store that was opened on the
// clock, and returns where the answers differ. The first line is {"limits": […], "about": "…"};
// every other line is an operation whose expected answer is under "want". Only the fields in "want"
// are compared, durations by value; a missing delay is 0s, and a missing list is empty.
//
// Quantum is the quantum of the store's clock, 1ns for a store in this process: expected waits are
// rounded up to it.
func RunVectors(store stint.Store, clock *Clock, quantum time.Duration, in io.Reader) ([]Mismatch, error) {
	var r *Runner
	var all []Mismatch
	err := EachLine(in, func(number int, line []byte) (err error) {
		if r == nil {
			var head struct{ Limits []string }
			if err = json.Unmarshal(line, &head); err == nil {
				r, err = New(store, clock, head.Limits)
			}
			return err
		}
		found, err := r.vector(line, quantum)
		for i := range found {
			found[i].Line = number
		}
		all = append(all, found...)
		return err
	})
	if r == nil && err == nil {
		err = errors.New("no vectors")
	}
	return all, err
}

func (r *Runner) vector(line []byte, quantum time.Duration) ([]Mismatch, error) {
	var fields, wanted, got map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(fields["want"], &wanted); err != nil {
		return nil, fmt.Errorf("want: %w", err)
	}
	delete(fields, "want")
	line, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	op, err := ParseOp(line)
	if err != nil {
		return nil, err
	}
	a, err := r.Do(op)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.AppendJSON(nil), &got); err != nil {
		return nil, err
	}
	var found []Mismatch
	for _, field := range [...]string{
		"allowed", "taken", "limit", "remaining", "tightest", "retry_after", "reset_after", "delay", "denied_by", "banned", "reservation",
	} {
		want, ok := wanted[field]
		delete(wanted, field)
		if ok && !same(field, got[field], want, quantum) {
			found = append(found, Mismatch{Field: field, Got: string(got[field]), Want: string(want)})
		}
	}
	for field := range wanted {
		return nil, fmt.Errorf("want: unknown field %q", field)
	}
	return found, nil
}

func same(field string, got, want json.RawMessage, quantum time.Duration) bool {
	switch field {
	case "retry_after", "reset_after", "delay":
		if len(got) == 0 {
			got = json.RawMessage(`"0s"`)
		}
		g, err := parseDuration(strings.Trim(string(got), `"`))
		w, err2 := parseDuration(strings.Trim(string(want), `"`))
		if err != nil || err2 != nil {
			return string(got) == string(want) // not a duration; compare as text
		}
		if rest := w % int64(quantum); rest != 0 {
			w += int64(quantum) - rest
		}
		return g == w
	case "denied_by":
		var g, w []string
		if len(got) > 0 && json.Unmarshal(got, &g) != nil || json.Unmarshal(want, &w) != nil {
			return false
		}
		return slices.Equal(g, w)
	}
	return string(got) == string(want)
}
