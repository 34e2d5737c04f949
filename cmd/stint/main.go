// Command stint is an exact rate limiter: it tries limits on a virtual clock
// and holds the clients of a server to them. Run stint --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // limits by calendar day work without a zone database

	"github.com/alecthomas/kong"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

func main() {
	os.Exit(run(context.Background(), arguments(os.Args), os.Stdin, os.Stdout, os.Stderr))
}

// arguments returns the arguments of the command line. A program by the name ratelimit
// runs "stint ratelimit": control planes start envoyproxy/ratelimit as /bin/ratelimit.
func arguments(program []string) []string {
	if filepath.Base(program[0]) == "ratelimit" {
		return []string{"ratelimit"}
	}
	return program[1:]
}

// The exit statuses of a command that failed, and of a wrong command line.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitRefused is the status of stint plan if a log does not say enough for a proposal.
	exitRefused = 3
)

// cli is the command line: a field a subcommand, each in a file of its own.
type cli struct {
	Serve    serveCmd    `cmd:"" group:"Limit requests:" help:"Run a rate limit service: answer whether requests may pass, by a rules file."`
	Proxy    proxyCmd    `cmd:"" group:"Limit requests:" help:"Run a reverse proxy that limits the clients of an HTTP server."`
	Validate validateCmd `cmd:"" group:"Limit requests:" help:"Check rules files for errors and probable mistakes."`
	Test     testCmd     `cmd:"" group:"Limit requests:" help:"Run tests of rules files: requests at given times, and the answers that they must get."`
	Explain  explainCmd  `cmd:"" group:"Limit requests:" help:"Explain which rules apply to a request, and why."`
	Import   importCmd   `cmd:"" group:"Limit requests:" help:"Convert the configuration of another rate limiter into rules."`
	Schema   schemaCmd   `cmd:"" group:"Limit requests:" help:"Print the JSON schema of rules files, for editors."`

	Simulate simulateCmd `cmd:"" group:"Choose limits:" help:"Try limits on a virtual clock: what passes, what is denied, and the waits."`
	Lab      labCmd      `cmd:"" group:"Choose limits:" help:"Serve a web page to try limits: draw requests, and see why they are denied."`
	Plan     planCmd     `cmd:"" group:"Choose limits:" help:"Evaluate limits on access logs, and propose one."`
	Rehearse rehearseCmd `cmd:"" group:"Choose limits:" help:"Show whom new rules would deny, on requests that a server recorded or of an access log."`

	Top      topCmd      `cmd:"" group:"Operate:" help:"Show which rules and keys are denied most on running servers, and which are near a limit."`
	Inspect  inspectCmd  `cmd:"" group:"Operate:" help:"Show the usage of a client under all rules of a running server, and why it is denied."`
	Block    blockCmd    `cmd:"" group:"Operate:" help:"Deny a customer for a while, end that, and list who is denied now."`
	Override overrideCmd `cmd:"" group:"Operate:" help:"Give customers limits of their own, or a plan."`
	Reset    resetCmd    `cmd:"" group:"Operate:" help:"Reset the usage of a customer, or give units back."`
	Audit    auditCmd    `cmd:"" group:"Operate:" help:"Show who changed what, and take a change back."`
	Token    tokenCmd    `cmd:"" group:"Operate:" help:"Create and revoke tokens for the HTTP API."`
	Doctor   doctorCmd   `cmd:"" group:"Operate:" help:"Report what stint serve would find on this machine, and who could reach it."`

	Rules rulesCmd `cmd:"" group:"Rules in a database:" help:"Publish rules to a database, show who uses them, and roll back."`

	Health     healthCmd     `cmd:"" group:"Rules in a database:" hidden:"" help:"Check whether a running stint is ready, for health checks of containers."`
	Ratelimit  ratelimitCmd  `cmd:"" group:"Rules in a database:" hidden:"" help:"Run in place of envoyproxy/ratelimit, by its environment."`
	Completion completionCmd `cmd:"" group:"Rules in a database:" hidden:"" help:"Print a script that completes commands in bash, zsh or fish."`
	Man        manCmd        `cmd:"" group:"Rules in a database:" hidden:"" help:"Write manual pages."`
	Version    versionCmd    `cmd:"" group:"Rules in a database:" hidden:"" help:"Print the version."`

	ShowHelp     helpCmd         `cmd:"" name:"help" group:"Rules in a database:" hidden:"" help:"Show the help of a command."`
	CompleteWord completeWordCmd `cmd:"" group:"Rules in a database:" hidden:""`
	ShowVersion  versionFlag     `name:"version" short:"v" help:"Print the version."`
	HelpAll      helpAllFlag     `hidden:"" help:"Show all flags."`
}

// Help is what "stint --help" says below the summary.
func (cli) Help() string {
	return `A limit is text:

    100 per minute               100 at once, then one every 600 ms
    10/s burst 20                20 at once, then ten a second
    1/s burst 5 leaky_queue      one a second; up to five more wait
    500/h sliding_log            never more than 500 in any hour
    5_000 per day in Europe/Paris

To begin:

    stint serve --demo
    stint simulate --arrivals '20@once +2s 40@10/s' --compare 5/s 5/m
    stint <command> --help`
}

// env is the environment of a subcommand.
type env struct {
	ctx      context.Context
	in       io.Reader
	out, err io.Writer
	program  *kong.Application // with all its commands
	line     *kong.Context     // the command line
	helpAll  bool              // the help shows all flags
}

// untilSignal returns a context that ends with SIGTERM or SIGINT. A second signal ends the
// process at once.
func (e *env) untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(e.ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// unlessStopped returns err, or nil if err says that ctx was canceled: a signal to stop is
// no failure.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// A command runs once its flags and arguments are read.
type command interface{ Run(e *env) error }

// A usageError is a wrong command line: it names the flag.
type usageError struct {
	flag string
	err  error
}

func (e *usageError) Error() string {
	return e.flag + ": " + strings.TrimPrefix(e.err.Error(), "stint: ")
}

func (e *usageError) Unwrap() error { return e.err }

// A withStatus is an error for which the exit status is not exitFailed.
type withStatus struct {
	error
	status int
}

func (e *withStatus) Unwrap() error { return e.error }

// usage returns the error of a flag.
func usage(flag, format string, args ...any) error {
	return &usageError{flag, fmt.Errorf(format, args...)}
}

// run is main with its world as arguments; it returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	redisstore.LogTo(nil) // the errors of Redis are returned, and logged by this program
	e := &env{ctx: ctx, in: in, out: out, err: errs}
	line, err := e.read(args)
	if _, done := errors.AsType[answered](err); done {
		return 0
	}
	if err != nil {
		name := "stint"
		if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
			name = parse.Context.Selected().FullPath()
		}
		fmt.Fprintf(errs, "stint: %s (try: %s --help)\n", printable(masked(meant(name, err.Error()))), name)
		return exitUsage
	}
	at := line.Selected()
	if slices.Contains(serving, at.Name) {
		e.warnOfVariables(os.Environ())
	}
	if err = e.checkFlags(line); err == nil {
		err = at.Target.Addr().Interface().(command).Run(e)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(errs, "%s: %s\n", at.FullPath(), printable(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "stint: "), "open ")))
	return statusOf(err)
}

// rewritten has words of the parser, and ours in their place.
var rewritten = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`time: missing unit in duration "([0-9.]+)"$`), "write a unit: ${1}ms, ${1}s or ${1}m"},
	{regexp.MustCompile(`expected a valid \d+ bit u?int but got (".*")$`), "$1 is no whole number"},
	{regexp.MustCompile(`expected \S+ value but got "EOL" \(<EOL>\)$`), "needs a value"},
	{regexp.MustCompile(`expected \S+ value but got "(.*)" \(.*flag\)(; perhaps try .*)?$`), `needs a value, and "$1" is none`},
	{regexp.MustCompile(`^(unknown flag -\w), did you mean .*$`), "$1"},
	{regexp.MustCompile(`^expected "<([a-z]+)>`), `missing: "<$1>`},
}

// hints say what is right where a word of another command, or of habit, is not.
var hints = []struct{ command, begins, hint string }{
	{"stint", "unexpected argument ban", "write stint block"},
	{"stint", "unexpected argument unban", "write stint block end"},
	{"stint", "unexpected argument unblock", "write stint block end"},
	{"stint block set", "unknown flag --until", "write --for DURATION"},
	{"stint reset", "unknown flag --header", "write --attribute header.NAME=VALUE"},
	{"stint reset", "unknown flag --ip", "write --attribute ip=ADDRESS"},
	{"stint rules push", "unknown flag --reason", "write --comment TEXT"},
	{"stint rules rollback", "unknown flag --reason", "write --comment TEXT"},
	{"stint serve", "unknown flag --listen", "write --http ADDRESS"},
	{"stint serve", "unknown flag --bind", "write --http ADDRESS"},
	{"stint proxy", "unknown flag --http", "write --listen ADDRESS"},
	{"stint override", "unexpected argument rm", "write remove"},
	{"stint inspect", "unknown flag --key", "write --ip ADDRESS, --header NAME=VALUE or --attribute NAME=VALUE"},
	{"stint inspect", "unexpected argument ", "write --ip ADDRESS, --header NAME=VALUE or --attribute NAME=VALUE"},
	{"stint rehearse", "unexpected argument ", "write --log FILE"},
	{"stint import", "unexpected argument ", "write which program's it is, such as stint import nginx FILE"},
}

// meant adds to an error of the command line what would be right, where that is clear.
func meant(command, text string) string {
	for _, one := range rewritten {
		text = one.from.ReplaceAllString(text, one.to)
	}
	word, unexpected := strings.CutPrefix(text, "unexpected argument ")
	_, err := netip.ParseAddr(word)
	switch {
	case unexpected && command == "stint explain" && strings.Contains(word, "."):
		return text + ": write -c " + word
	case command == "stint inspect" && err == nil:
		return text + ": write --ip " + word
	}
	for _, one := range hints {
		if one.command == command && strings.HasPrefix(text, one.begins) {
			text, _, _ = strings.Cut(text, ", did you mean ")
			return text + ": " + one.hint
		}
	}
	return text
}

// statusOf returns the exit status for a command's error.
func statusOf(err error) int {
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if own, ok := errors.AsType[*withStatus](err); ok {
		return own.status
	}
	return exitFailed
}

var (
	ofOption = regexp.MustCompile(`[a-z] +[\d_,]+$`)        // ends in the number of an option
	isCount  = regexp.MustCompile(`^ *(/|[a-z]+ */|per\b)`) // follows a count
)

// splitLimits cuts a list of limits at its commas, except commas in a number, as in
// 1,000/h. A comma between the number of an option and a count does cut: burst 20,100/h is
// two limits.
func splitLimits(list string) (texts []string) {
	digit := func(i int) bool { return i >= 0 && i < len(list) && '0' <= list[i] && list[i] <= '9' }
	from := 0
	for i := range len(list) {
		group := digit(i-1) && digit(i+1) && digit(i+2) && digit(i+3) && !digit(i+4)
		if list[i] == ',' && (!group || i+4 < len(list) && list[i+4] == '_' || ofOption.MatchString(list[from:i]) && isCount.MatchString(list[i+4:])) {
			texts = append(texts, strings.TrimSpace(list[from:i]))
			from = i + 1
		}
	}
	return append(texts, strings.TrimSpace(list[from:]))
}

// parseLimits reads the values of a flag.
func parseLimits(flag string, texts []string) ([]stint.Limit, error) {
	limits := make([]stint.Limit, len(texts))
	for i, text := range texts {
		var err error
		if limits[i], err = stint.Parse(text); err != nil {
			return nil, &usageError{flag, err}
		}
	}
	return limits, nil
}
