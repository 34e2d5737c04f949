package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/ruletest"
)

type testCmd struct {
	Files    []string `arg:"" name:"file" help:"Test files, YAML or JSON."`
	jsonFlag `embed:""`
}

// Help is what "stint test --help" says below the summary.
func (testCmd) Help() string {
	return `A test file names a rules file, whose path is relative to the test file, and says
which requests come when, and what must become of them:

    rules: stint.yaml
    tests:
      - name: five logins a minute
        requests:
          - t: 0s
            times: 5
            attributes: {method: POST, path: /login, ip: 192.0.2.7}
            expect: {allowed: true}
          - t: 1s
            attributes: {method: POST, path: /login, ip: 192.0.2.7}
            expect: {allowed: false, denied_by: [login], retry_after: 59s}

The rules decide as in production, on a virtual clock and in memory; each test
begins with nothing used. The status is 0 if everything is as expected, 1 if
something is not, and 2 if a file is wrong. With --json, each file is a line.
docs/TEST.md has the rest.

For example:

    stint test stint_test.yaml
    stint test --json rules/*_test.yaml`
}

// A tested is the outcome of a test file.
type tested struct {
	File  string            `json:"file"`
	OK    bool              `json:"ok"`
	Tests []ruletest.Result `json:"tests"`
	// Errors are the errors in File, or in the rules file that it names.
	Errors []fileFault `json:"errors,omitzero"`
}

// A fileFault is an error in a file.
type fileFault struct {
	File string `json:"file"`
	rules.Finding
}

// Run runs all tests of all files, even after one has failed.
func (c *testCmd) Run(e *env) error {
	var failed, of, wrong int
	for _, name := range c.Files {
		t, err := testFile(e, name)
		if err != nil {
			return err
		}
		for _, one := range t.Tests {
			if of++; !one.OK {
				failed++
			}
		}
		if len(t.Errors) > 0 {
			wrong++
		}
		if err := printed(e.out, c.JSON, t, t.text); err != nil {
			return err
		}
	}
	switch {
	case wrong > 0:
		return &withStatus{fmt.Errorf("%d of %s wrong", wrong, count(len(c.Files), "file")), exitUsage}
	case failed > 0:
		return fmt.Errorf("%d of %s failed", failed, count(of, "test"))
	}
	return nil
}

// testFile runs the tests of a file. An error in the file goes into the outcome; the error
// that it returns is of another kind.
func testFile(e *env, name string) (*tested, error) {
	t := &tested{File: name, Tests: []ruletest.Result{}}
	f, err := ruletest.Read(name)
	if err != nil {
		t.Errors = faultsOf(name, err)
		return t, nil
	}
	if t.Tests, err = f.Run(e.ctx); err != nil {
		return nil, err
	}
	t.OK = true
	for _, one := range t.Tests {
		t.OK = t.OK && one.OK
	}
	return t, nil
}

// faultsOf returns the errors in a file, or in the file that err names.
func faultsOf(name string, err error) (all []fileFault) {
	if named, ok := errors.AsType[*rules.Error](err); ok {
		name = named.Name
	}
	for _, one := range rules.ReportOf(nil, err).Errors {
		all = append(all, fileFault{name, one})
	}
	return all
}

// text writes lines for people.
func (t *tested) text(w io.Writer) error {
	var b strings.Builder
	for _, f := range t.Errors {
		one := rulesfile.Error{Line: f.Line, Column: f.Column, Path: f.Path, Reason: f.Reason, Hint: f.Hint}
		sep := ":"
		if f.Line == 0 {
			sep = ": "
		}
		b.WriteString(f.File + sep + one.Error() + "\n")
	}
	for _, one := range t.Tests {
		if one.OK {
			fmt.Fprintf(&b, "ok    %s\n", one.Name)
			continue
		}
		fmt.Fprintf(&b, "FAIL  %s\n", one.Name)
		for i := range one.Failures {
			for line := range strings.Lines(one.Failures[i].Text(t.File)) {
				b.WriteString("      " + line)
			}
		}
		if one.More > 0 {
			fmt.Fprintf(&b, "      and %d more\n", one.More)
		}
	}
	return wrap(w, b.String(), "        ")
}
