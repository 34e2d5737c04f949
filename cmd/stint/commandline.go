package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/wording"
)

// read reads a command line by the tags of the commands' fields. Most tags are
// kong's. Two are ours: more:"" leaves a flag to --help-all, and of the flags with the
// same instead:"NAME", one may be on the line, and makes read ignore the environment of the others.
func (e *env) read(args []string) (line *kong.Context, err error) {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := kong.New(&cli{}, kong.Name("stint"), kong.Description("An exact rate limiter."),
		kong.Writers(e.out, e.err), kong.Help(help(e)), kong.Vars{"dialects": strings.Join(httplimit.DialectNames(), ",")},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 80}),
		kong.Bind(e), kong.NamedMapper("gobool", goBool{}), kong.Exit(func(int) { panic(answered{}) }))
	if err != nil {
		return nil, err
	}
	e.program = k.Model
	defer func() {
		if _, ok := recover().(answered); ok {
			err = answered{}
		}
	}()
	unsetEmpty(k.Model)
	line, err = k.Parse(args)
	if err == nil {
		preferLine(line)
		e.line = line
	}
	return line, err
}

// answered says that a flag, such as --help, was answered, and nothing is left to run.
type answered struct{}

func (answered) Error() string { return "answered" }

// A versionFlag prints the version, whatever else the line has.
type versionFlag bool

// BeforeReset is called by kong before it looks at the rest of the line.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	fmt.Fprintln(k.Stdout, version())
	k.Exit(0)
	return nil
}

// A helpAllFlag prints the help with all flags.
type helpAllFlag bool

// BeforeReset is called by kong before it looks at the rest of the line.
func (helpAllFlag) BeforeReset(line *kong.Context, e *env) error {
	e.helpAll = true
	if err := line.PrintUsage(false); err != nil {
		return err
	}
	line.Exit(0)
	return nil
}

// help prints the help of a command. Only --help-all shows the flags that few users need.
func help(e *env) kong.HelpPrinter {
	return func(options kong.HelpOptions, line *kong.Context) error {
		left := 0
		for _, f := range line.Flags() {
			if f.Name == "version" && line.Selected() != nil {
				f.Hidden = true
			}
			if f.Tag.Has("more") && !e.helpAll {
				f.Hidden = true
				left++
			}
		}
		if err := kong.DefaultHelpPrinter(options, line); err != nil || left == 0 {
			return err
		}
		_, err := fmt.Fprintf(line.Stdout, "\n%s --help-all shows %d more flags.\n", line.Selected().FullPath(), left)
		return err
	}
}

// helpCmd shows the help of a command, as --help does: stint help serve.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command."`
}

// Run prints the help.
func (c *helpCmd) Run(e *env) error {
	_, err := e.read(append(c.Command, "--help"))
	if _, done := errors.AsType[answered](err); done {
		return nil
	}
	return usage("help", "%w", err)
}

// unsetEmpty makes empty variables of ours count as not set: so unit files and charts unset one.
func unsetEmpty(program *kong.Application) {
	empty := func(name string) bool {
		value, set := os.LookupEnv(name)
		return set && value == "" && strings.HasPrefix(name, "STINT_")
	}
	for _, n := range program.Leaves(false) {
		for _, f := range slices.Concat(n.AllFlags(false)...) {
			f.Tag.Envs = slices.DeleteFunc(slices.Clone(f.Tag.Envs), empty)
		}
	}
}

// preferLine clears a flag that the environment gave, if the command line has a flag in its
// place.
func preferLine(line *kong.Context) {
	on, given := make(map[*kong.Flag]bool), make(map[string]bool)
	for _, p := range line.Path {
		if p.Flag != nil && p.Flag.Tag.Has("instead") {
			on[p.Flag], given[p.Flag.Tag.Get("instead")] = true, true
		}
	}
	for _, f := range line.Flags() {
		if given[f.Tag.Get("instead")] && !on[f] {
			f.Target.SetZero()
		}
	}
}

// onlyOnce returns an error if a flag with one value is repeated: kong would take the last.
func onlyOnce(line *kong.Context) error {
	given := make(map[string]bool)
	for _, p := range line.Path {
		f := p.Flag
		switch {
		case f == nil || f.IsSlice() || f.IsMap() || f.IsBool() || f.IsCounter():
		case !given[f.Name]:
			given[f.Name] = true
		case f.Name == "key":
			return usage("--key", "given more than once, and takes one key; a rules file joins several: key: [header.x-team, ip]")
		default:
			return usage("--"+f.Name, "given more than once, and takes one value")
		}
	}
	return nil
}

// ofKubernetes matches a variable that Kubernetes sets for a Service by the name stint or stint-….
var ofKubernetes = regexp.MustCompile(`^STINT_(\w+_)?(SERVICE_(HOST|PORT\w*)=|PORT(_\d+_[A-Z]+)?=[a-z]+://|PORT_\d+_[A-Z]+_(PROTO|PORT|ADDR)=)`)

// warn writes a warning, as a line of the log if that is JSON.
func (e *env) warn(text string) {
	for _, f := range e.line.Flags() {
		if f.Name == "log-format" && f.Target.String() == "json" {
			slog.New(slog.NewJSONHandler(e.err, nil)).Warn(text)
			return
		}
	}
	fmt.Fprintf(e.err, "%s: warning: %s\n", e.line.Selected().FullPath(), text)
}

// warnOfVariables warns of variables of the environment that no flag reads.
func (e *env) warnOfVariables(environment []string) {
	command := e.line.Selected().FullPath()
	known := make(map[string]bool)
	for _, n := range e.program.Leaves(false) {
		for _, f := range slices.Concat(n.AllFlags(false)...) {
			for _, name := range f.Envs {
				known[name] = true
			}
		}
	}
	for _, one := range environment {
		name, _, _ := strings.Cut(one, "=")
		if !strings.HasPrefix(name, "STINT_") || known[name] || ofKubernetes.MatchString(one) {
			continue
		}
		hint := command + " --help-all names those of each flag"
		if near := wording.Nearest(name, maps.Keys(known), 3); near != "" {
			hint = "did you mean $" + near + "?"
		}
		e.warn("no flag reads $" + printable(name) + ": " + hint)
	}
}

// password matches secrets in a word of the command line: what stands between a scheme
// and @, and the value of a name such as password, secret or token.
var password = regexp.MustCompile(`(?i)(://)[^/\s"]*(@)|((?:password|secret|token)[^=\s"]*=)[^\s"]+`)

// masked returns the text of an error without passwords.
func masked(text string) string { return password.ReplaceAllString(text, "$1$3…$2") }
