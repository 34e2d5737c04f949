package rules

import (
	"errors"
	"strings"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// A Report says whether a document of rules is valid, and what is wrong in it.
type Report struct {
	Valid    bool      `json:"valid"`
	Rules    int       `json:"rules"` // the number of rules, if it is valid
	Errors   []Finding `json:"errors"`
	Warnings []Finding `json:"warnings"`
}

// A Finding is an error or a warning. Line and column are 0 where it is about the document as a
// whole.
type Finding struct {
	Line   int    `json:"line,omitzero"`
	Column int    `json:"column,omitzero"`
	Path   string `json:"path,omitzero"`
	Rule   string `json:"rule,omitzero"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitzero"`
}

// ReportOf returns the report on a document that was read, or on the error err of reading it. It
// does not name the document.
func ReportOf(f *File, err error) Report {
	r := Report{Errors: []Finding{}, Warnings: []Finding{}}
	switch errs, ok := errors.AsType[rulesfile.Errors](err); {
	case ok:
		for _, one := range errs {
			r.Errors = append(r.Errors, Finding{one.Line, one.Column, one.Path, "", one.Reason, one.Hint})
		}
	case err != nil:
		if named, ok := errors.AsType[*Error](err); ok {
			err = named.Err
		}
		r.Errors = append(r.Errors, Finding{Reason: strings.TrimPrefix(err.Error(), "policy: ")})
	default:
		r.Valid, r.Rules = true, len(f.Rules.Names())
		for _, w := range f.Warnings {
			r.Warnings = append(r.Warnings, Finding{w.Line, w.Column, "", w.Rule, w.Reason, w.Hint})
		}
	}
	return r
}
