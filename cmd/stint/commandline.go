package main

import (
	"fmt"
	"io"
	"regexp"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// exited unwinds from kong, which ends the process after --help.
type exited int

// newParser returns what reads a command line into c.
func newParser(c *cli, out, errs io.Writer) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("stint"),
		kong.Description("An exact rate limiter."),
		kong.Writers(out, errs),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 80}),
		kong.Help(help),
	)
}

// help prints the help of a command. Flags of stint itself are in that of stint
// alone.
func help(o kong.HelpOptions, k *kong.Context) error {
	if k.Selected() != nil {
		for _, f := range k.Model.Flags {
			f.Hidden = f.Hidden || f.Name == "version"
		}
	}
	return kong.DefaultHelpPrinter(o, k)
}

// versionFlag is --version, which does what "stint version" does.
type versionFlag bool

// BeforeReset prints the version and ends, whatever else the command line says.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	fmt.Fprintln(app.Stdout, describe(info))
	app.Exit(0)
	return nil
}

// unvalued is what kong says of a flag at the end of a line, whose value is missing.
var unvalued = regexp.MustCompile(`expected .* value but got "EOL" \(<EOL>\)`)

// misread says what is wrong with a command line.
func misread(err error) string { return unvalued.ReplaceAllString(err.Error(), "its value is missing") }
