package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/service/rules"
)

type validateCmd struct {
	Files     []string `arg:"" optional:"" name:"file" help:"Rules files, YAML or JSON; - is standard input."`
	readFlags `embed:""`
	Strict    bool `help:"Fail on warnings too."`
	jsonFlag  `embed:""`
}

// Help is what "stint validate --help" says below the summary.
func (validateCmd) Help() string {
	return `Says all that is wrong in rules files, with line, column and what would be
right, and warns of what is allowed and likely not meant. The status is 0 if
every file is good, else 1. With --json, each file is a line.

For example:

    stint validate stint.yaml
    stint validate --rules postgres://stint@127.0.0.1/stint
    stint validate --strict --json rules/*.yaml
    kubectl get configmap stint -o 'jsonpath={.data.stint\.yaml}' |
        stint validate -`
}

// A report has the errors and warnings of one file.
type report struct {
	File string `json:"file"`
	rules.Report
}

// Run reads the files and reports on each.
func (c *validateCmd) Run(e *env) error {
	if i := slices.Index(c.Files, "-"); i >= 0 && slices.Contains(c.Files[i+1:], "-") {
		return usage("file", "- is standard input, which can be read once")
	}
	var all []report
	switch {
	case len(c.Files) > 0 && e.from("rules") == "--rules":
		return usage("--rules", "and %s: give one of them", c.Files[0])
	case len(c.Files) > 0: // over $STINT_RULES
		for _, name := range c.Files {
			all = append(all, inspect(name, e.in))
		}
	case c.Rules == "":
		return usage("file", "missing: write a rules file, or --rules and where the rules are")
	default:
		name, document, err := c.document(e)
		if err != nil {
			return err
		}
		f, err := rules.Decode(name, document)
		all = append(all, reportOf(name, f, err))
	}
	refused := 0
	for _, r := range all {
		if !r.Valid || c.Strict && len(r.Warnings) > 0 {
			refused++
		}
		if err := printed(e.out, c.JSON, r, r.text); err != nil {
			return err
		}
	}
	if refused > 0 {
		return fmt.Errorf("refused %d of %d", refused, len(all))
	}
	return nil
}

// inspect reads a file, or standard input as -.
func inspect(name string, in io.Reader) report {
	if name == "-" {
		f, err := decode(in)
		return reportOf(name, f, err)
	}
	f, err := rules.Read(name)
	return reportOf(name, f, err)
}

// reportOf returns the report on a file that was read, or on the error of reading it.
func reportOf(name string, f *rules.File, err error) report {
	if err == nil {
		err = bindable(f)
	}
	return report{name, rules.ReportOf(f, err)}
}

// bindable binds rules to a store in memory as stint serve would, since a store may
// refuse a limit, such as a log that is too long. If the file names a store in Redis,
// it binds them to such a store, without connecting.
func bindable(f *rules.File) error {
	var store stint.Store = memstore.New(memstore.Options{MaxKeys: 1})
	if err := checkStore(f); err != nil {
		return err
	}
	if f.Settings.Store != "" {
		shared, err := redisstore.New(redisstore.Options{Driver: nowhere{}})
		if err != nil {
			return err
		}
		store = &sharedStore{Store: shared, configuredNodes: 1}
	}
	defer store.Close()
	secret := make([]byte, 16) // the file cannot say whether --secret-file will be given
	p, err := policy.New(store, f.Rules, policy.Options{Secret: secret})
	if err == nil {
		p.Close()
	}
	return err
}

// nowhere is a driver without a server: every call fails.
type nowhere struct{}

func (nowhere) EvalSHA(context.Context, string, []string, []string) (any, error) {
	return nil, redisstore.ErrUnavailable
}

func (nowhere) Eval(context.Context, string, []string, []string) (any, error) {
	return nil, redisstore.ErrUnavailable
}

func (nowhere) Cluster() bool { return false }
func (nowhere) Close()        {}

func decode(in io.Reader) (*rules.File, error) {
	data, err := rules.ReadAll(in)
	if err != nil {
		return nil, err
	}
	return rules.Decode("-", data)
}

// text writes a line for each finding, as compilers do, and one for the file.
func (r report) text(w io.Writer) error {
	lines := ""
	for _, f := range r.Errors {
		lines += r.line("error", f)
	}
	for _, f := range r.Warnings {
		lines += r.line("warning", f)
	}
	lines += r.File + ": "
	if r.Valid {
		lines += count(r.Rules, "rule") + ", " + count(len(r.Warnings), "warning") + "\n"
	} else {
		lines += count(len(r.Errors), "error") + "\n"
	}
	return wrap(w, lines, "    ")
}

func (r report) line(word string, f rules.Finding) string {
	place := r.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", r.File, f.Line, f.Column)
	}
	what := f.Reason
	switch {
	case f.Path != "":
		what = f.Path + ": " + what
	case f.Rule != "":
		what = "rule " + f.Rule + ": " + what
	}
	if f.Hint != "" {
		what += "; " + f.Hint
	}
	return fmt.Sprintf("%s: %s: %s\n", place, word, what)
}
