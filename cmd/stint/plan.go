package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/planner/plan"
	"github.com/stint-dev/stint/service/rules"
)

type planCmd struct {
	Log []string `arg:"" optional:"" help:"Access logs, also .gz and .zst; - is standard input. The format is recognised."`

	Limit   []string `sep:"none" placeholder:"LIMIT" group:"What to try" help:"What would '10/s burst 20' have done? Several are each tried alone, in one pass."`
	DenyAt  string   `name:"deny-at-most" placeholder:"SHARE" group:"What to try" help:"Propose the tightest limit that denies at most '0.1%' of the clients, or '0.1% of requests'. The default, when nothing else is asked for, is 0.1% of the clients, or where a few clients stand clearly apart, these alone."`
	Propose string   `placeholder:"FILE" group:"What to try" help:"Write a rules file to this new file: routes that the log shows, each with the limit that suits it, in shadow first."`
	Margin  string   `default:"20%" placeholder:"20%" group:"What to try" help:"Room for growth in what is proposed."`

	Key       []string `placeholder:"NAME" group:"What counts" help:"The field that identifies a client: ip (the default; IPv6 by /64), path, header.NAME, or any field of the log. Several: NAME,NAME."`
	Match     []string `sep:"none" placeholder:"NAME=PATTERN" group:"What counts" help:"Only requests like these, as in rules: 'path=/api/**', 'method=POST'."`
	Cost      string   `placeholder:"FIELD" group:"What counts" help:"What a request costs: bytes, or any field with a whole number. The default is 1."`
	From      string   `placeholder:"TIME" group:"What counts" help:"Leave out requests before this time: 2015-05-17, or 2015-05-17T10:05:00."`
	To        string   `placeholder:"TIME" group:"What counts" help:"Leave out requests at this time or later."`
	Exempt    []string `sep:"none" placeholder:"KEY" group:"What counts" help:"A client, or a range of addresses, that the proposed rule lets through, by an override."`
	IgnoreKey []string `sep:"none" placeholder:"KEY" group:"What counts" help:"Leave out of the choice a client, or a range of addresses; the rule holds for it."`

	TrustedProxies []string `sep:"," placeholder:"RANGE" group:"What counts" help:"Proxies whose X-Forwarded-For gives the client's address, as in rules. With --rules, the file lists them."`
	ClientIPHeader string   `name:"client-ip-header" placeholder:"HEADER" group:"What counts" help:"The header in which these proxies send the client's address, as in rules."`

	Format string            `placeholder:"PATTERN" group:"How to read" help:"How lines are written, as nginx's log_format or Apache's LogFormat has it: '$remote_addr - $user [$time_local]', '%h %t'. The default is to recognise it."`
	Field  map[string]string `mapsep:"none" placeholder:"NAME=FIELD" group:"How to read" help:"The field of JSON or a table that has an attribute: time=ts, ip=client.address."`
	TZ     string            `name:"tz" placeholder:"ZONE" group:"How to read" help:"The zone of times without one, and of the report: Europe/Paris. The default is UTC."`

	JSON  bool   `name:"json" group:"What to tell" help:"Write JSON."`
	HTML  string `name:"html" placeholder:"FILE" group:"What to tell" help:"Write a report with charts to this file as well."`
	Brief bool   `group:"What to tell" help:"Leave out the requests without limits: less memory for many clients."`
	Quiet bool   `group:"What to tell" help:"No progress."`
}

// Help is what "stint plan --help" says below the summary.
func (planCmd) Help() string {
	return `Reads access logs, decides every request as the engine would have, and
says what clients really send, what a limit would have done to them, and which
limit to choose. Combined and common logs of Apache and nginx, JSON lines of
nginx, Caddy, Envoy or with any fields, AWS load balancers, CSV and TSV with
named columns, each maybe behind a syslog prefix.

For example:

    stint plan access.log
    stint plan --limit '10/s burst 20' --limit 100/m access.log*
    stint plan --limit 100/m --html report.html access.log.gz
    stint plan --deny-at-most '0.1% of requests' --match 'path=/api/**' \
        --key header.x-api-key --field header.x-api-key=key api.jsonl
    ssh web1 cat access.log | stint plan -`
}

// Run reads the logs and reports.
func (c *planCmd) Run(e *env) error {
	o, err := c.options(e)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(e.ctx, os.Interrupt)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second Ctrl-C ends the program at once
	p := newProgress(e.err)
	if p != nil && !c.Quiet {
		o.Progress = p.show
	}
	if c.Propose != "" {
		if err = c.propose(ctx, e, o, p); errors.Is(err, context.Canceled) {
			return errors.New("interrupted: nothing is proposed")
		}
		return err
	}
	report, err := plan.Run(ctx, o)
	if p != nil {
		p.clear()
	}
	if err != nil {
		return err
	}
	if err := c.write(e.out, report); err != nil {
		return err
	}
	if report.Log.Interrupted {
		return errors.New("interrupted: the report is of a part of the log")
	}
	if report.Partial() && !report.Refused() {
		return errors.New("a log was not read to its end: the report is of a part of it")
	}
	if report.Log.Requests == 0 && !report.Refused() {
		return errors.New("no request was read: there is nothing that a limit could have denied")
	}
	if report.Refused() {
		return &withStatus{errors.New("this log bears no proposal: see what was found"), exitRefused}
	}
	return nil
}

// propose writes a rules file.
func (c *planCmd) propose(ctx context.Context, e *env, o plan.Options, p *progress) error {
	proposal, err := plan.Propose(ctx, o)
	if p != nil {
		p.clear()
	}
	if err != nil {
		return err
	}
	if !proposal.Refused() {
		if _, err := checkRules(c.Propose, []byte(proposal.File)); err != nil {
			return fmt.Errorf("the rules that were found are not valid, and nothing is written: %w", err)
		}
		f, err := os.OpenFile(c.Propose, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = io.WriteString(f, proposal.File)
		if err := errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(c.Propose) // or the next try would find it there
			return err
		}
	}
	if c.JSON {
		err = json.NewEncoder(e.out).Encode(proposal)
	} else {
		err = proposal.Text(e.out, c.Propose)
	}
	if err == nil && proposal.Refused() {
		err = &withStatus{errors.New("this log bears no proposal: see what was found"), exitRefused}
	}
	return err
}

// write writes the report, and the page beside it.
func (c *planCmd) write(out io.Writer, report *plan.Report) error {
	if c.HTML != "" {
		if err := writeFile(c.HTML, report.HTML); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(out, report)
	}
	return report.Text(out)
}

// options turns flags into the options of package plan.
func (c *planCmd) options(e *env) (plan.Options, error) {
	o := plan.Options{
		Files: c.Log, Stdin: e.in, Match: c.Match, Cost: c.Cost,
		Fields: c.Field, Format: c.Format, Exempt: c.Exempt, IgnoreKeys: c.IgnoreKey,
		Limits: c.Limit, Brief: c.Brief, Key: c.Key,
	}
	if err := c.check(); err != nil {
		return o, err
	}
	if err := (&plan.Options{Match: c.Match}).Check(); err != nil {
		return o, &usageError{"--match", err}
	}
	if err := o.Check(); err != nil {
		return o, &usageError{"--limit", err}
	}
	var err error
	if o.Zone, err = time.LoadLocation(c.TZ); err != nil {
		return o, &usageError{"--tz", err}
	}
	if o.From, err = parseMoment(c.From, o.Zone); err != nil {
		return o, &usageError{"--from", err}
	}
	if o.To, err = parseMoment(c.To, o.Zone); err != nil {
		return o, &usageError{"--to", err}
	}
	if c.From != "" && c.To != "" && !o.From.Before(o.To) {
		return o, usage("--to", "%s is not after --from %s", c.To, c.From)
	}
	if o.Margin, err = parsePercent(c.Margin); err != nil {
		return o, &usageError{"--margin", err}
	}
	for _, text := range c.TrustedProxies {
		proxy, err := rules.ParseProxy(text)
		if err != nil {
			return o, &usageError{"--trusted-proxies", err}
		}
		o.Client.Trusted = append(o.Client.Trusted, proxy)
		o.Client.Header = c.ClientIPHeader
	}
	target := c.DenyAt
	if target == "" && len(c.Limit) == 0 {
		target = "default"
	}
	if target != "" {
		t, err := plan.ParseTarget(target)
		if err != nil {
			return o, &usageError{"--deny-at-most", err}
		}
		o.Choose = &t
	}
	return o, nil
}

// check returns an error for flags that contradict each other.
func (c *planCmd) check() error {
	switch {
	case len(c.Log) == 0:
		return usage("LOG", "missing: name an access log, or - for standard input")
	case c.Propose != "" && (len(c.Limit) > 0 || c.DenyAt != "" || len(c.Key) > 0 || c.HTML != "" || c.Cost != ""):
		return usage("--propose", "finds keys and limits itself: leave --limit, --deny-at-most, --key, --cost and --html out")
	case c.ClientIPHeader != "" && len(c.TrustedProxies) == 0:
		return usage("--client-ip-header", "goes with --trusted-proxies, which speak through it")
	}
	stdin := 0
	for _, name := range c.Log {
		if name == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return usage("LOG", "standard input can be read but once")
	}
	return nil
}

// parseMoment reads a date or a time, in zone unless the text names another.
func parseMoment(text string, zone *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: write a date such as 2015-05-17, or with a time 2015-05-17T10:05:00", text)
}

func parsePercent(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n >= 0 && n <= 1000) {
		return 0, fmt.Errorf("%q: write a share such as 20%%", text)
	}
	return n / 100, nil
}

// A progress shows on a terminal how much has been read.
type progress struct {
	out   io.Writer
	start time.Time
}

// newProgress returns nil if out is no terminal.
func newProgress(out io.Writer) *progress {
	f, ok := out.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &progress{f, time.Now()}
}

func (p *progress) show(what string, read, of int64) {
	fmt.Fprintf(p.out, "\r\033[K%s", progressLine(what, read, of, time.Since(p.start)))
}

func (p *progress) clear() { fmt.Fprint(p.out, "\r\033[K") }

// barWidth is how many columns the bar has.
const barWidth = 30

// progressLine says how much was read, how fast, and how long the rest takes at that speed.
func progressLine(what string, read, of int64, took time.Duration) string {
	pace := float64(read) / max(took.Seconds(), 1e-3)
	if of <= 0 {
		return fmt.Sprintf("%s %.0f MB, %.0f MB/s", what, float64(read)/1e6, pace/1e6)
	}
	part := min(float64(read)/float64(of), 1)
	full := int(part * barWidth)
	left := time.Duration(float64(of-min(read, of)) / max(pace, 1) * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s %s%s %3.0f%%, %.0f MB/s, %s left", what,
		strings.Repeat("█", full), strings.Repeat("░", barWidth-full), part*100, pace/1e6, left)
}
