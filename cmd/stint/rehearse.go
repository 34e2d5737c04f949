package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/planner/plan"
	"github.com/stint-dev/stint/service/rehearse"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

type rehearseCmd struct {
	File         string `arg:"" help:"The rules file to try; - is standard input."`
	addressFlags `embed:""`
	Log          []string      `instead:"backend" placeholder:"FILE" help:"Instead of --server: an access log. May be repeated."`
	Before       string        `placeholder:"FILE" help:"With --log: the rules file to compare with. The default is no rules."`
	LogFormat    string        `placeholder:"PATTERN" help:"With --log: the format of its lines, as for stint plan --format. The default is to recognise it."`
	Names        bool          `help:"Show keys in clear, for operators. The default is their hashes, as in the log; keys of --log are in clear."`
	Top          int           `default:"20" placeholder:"N" help:"How many keys to list (${default})."`
	WarmUp       time.Duration `default:"-1ns" placeholder:"DURATION" help:"For how long the first requests are not counted. The default is as long as the slowest limit remembers, at most half of the recording."`
	DenyAtMost   *string       `placeholder:"SHARE" help:"Fail if a greater share of requests is newly denied, such as 0.1%."`
	jsonFlag     `embed:""`
}

// Help is what "stint rehearse --help" says below the summary.
func (rehearseCmd) Help() string {
	return `The rules in force and those of the file decide the same requests, as in
production, on a clock that follows the times of the requests. The rules in force
do not change.

For example:

    stint rehearse new.yaml --server http://127.0.0.1:9090
    stint rehearse new.yaml --server https://10.0.0.1:9090 --token-file token \
        --names
    stint rehearse new.yaml --log access.log --before stint.yaml
    stint rehearse new.yaml --server http://127.0.0.1:9090 --deny-at-most 0.1%

docs/REHEARSE.md has the details.`
}

// Run rehearses.
func (c *rehearseCmd) Run(e *env) error {
	gate, err := parseShare(c.DenyAtMost)
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	name, document, err := readRules(e, c.File)
	if err != nil {
		return err
	}
	var report *rehearse.Report
	if c.Server != "" {
		report, err = c.onServer(e, name, document)
	} else {
		report, err = c.onLogs(e, name, document)
	}
	if err != nil {
		return err
	}
	if err = printed(e.out, c.JSON, report, report.Text); err == nil && c.DenyAtMost != nil {
		err = gate.check(report)
	}
	return err
}

func (c *rehearseCmd) check() error {
	switch {
	case c.Server == "" && len(c.Log) == 0:
		return usage("--server", "missing: write the admin address of a server, such as --server http://127.0.0.1:9090, or an access log, as --log FILE")
	case c.Server != "" && (c.Before != "" || c.LogFormat != ""):
		return usage("--before and --log-format", "go with --log")
	case len(slices.DeleteFunc(slices.Clone(c.Log), func(name string) bool { return name != "-" })) > 1:
		return usage("--log", "standard input can be read but once")
	case c.Top < 1 || c.Top > 1000:
		return usage("--top", "%d: from 1 to 1000", c.Top)
	case c.WarmUp < -1:
		return usage("--warm-up", "%v: at least 0s", c.WarmUp)
	}
	return nil
}

// onServer asks a server.
func (c *rehearseCmd) onServer(e *env, name string, document []byte) (*rehearse.Report, error) {
	query := rehearse.Query{Name: name, Document: string(document), Names: c.Names, Top: c.Top}
	if c.WarmUp >= 0 {
		query.WarmUp = c.WarmUp.String()
	}
	return rehearseOnServer(e.ctx, "--server", c.Server, c.TokenFile, query)
}

// rehearseOnServer asks a server to rehearse; flag is the flag that names the server.
func rehearseOnServer(ctx context.Context, flag, server, tokenFile string, query rehearse.Query) (*rehearse.Report, error) {
	client, err := rulesapi.Dial(server, tokenFile)
	if err != nil {
		return nil, &usageError{flag, err}
	}
	report := new(rehearse.Report)
	err = client.WithExtraTime(rehearse.Within).Call(ctx, http.MethodPost, rehearse.Path, nil, query, report)
	return report, err
}

// onLogs rehearses here, on logs.
func (c *rehearseCmd) onLogs(e *env, name string, document []byte) (*rehearse.Report, error) {
	f, err := checkRules(name, document)
	if err != nil {
		return nil, err
	}
	before := &rules.File{}
	if before.Rules, err = policy.Parse([]byte(`{"rules": []}`)); err != nil {
		return nil, err
	}
	if c.Before != "" {
		if before, err = rules.Read(c.Before); err != nil {
			return nil, err
		}
	}
	o := rehearse.Options{After: f.Rules, Names: true, Top: c.Top}
	if err := c.readLogs(e, f, before.Rules, &o); err != nil {
		return nil, err
	}
	store := memstore.New(memstore.Options{MaxKeys: 1})
	defer store.Close()
	o.Live, err = policy.New(store, before.Rules, policy.Options{Secret: make([]byte, 16)})
	if err != nil {
		return nil, err
	}
	if c.WarmUp >= 0 {
		if o.WarmUp = c.WarmUp; o.WarmUp == 0 {
			o.WarmUp = -1
		}
	}
	return rehearse.Run(e.ctx, o)
}

// readLogs makes a recording from access logs: the attributes that rules use, with the
// client's address behind the proxies that the new file trusts. A request that was answered
// 429 counts as denied. The options also get how many requests the lines that could not be read may
// hold.
func (c *rehearseCmd) readLogs(e *env, f *rules.File, before *policy.Rules, to *rehearse.Options) error {
	var names []string
	for _, name := range slices.Concat(before.Attributes(), f.Rules.Attributes()) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	o := plan.Options{
		Files: c.Log, Stdin: e.in, Format: c.LogFormat, Most: rehearse.MostBuilt,
		Client: httplimit.ClientIP{Trusted: f.Settings.TrustedProxies, Header: f.Settings.ClientIPHeader},
	}
	builder := rehearse.NewBuilder(names)
	found, unread, err := plan.Requests(e.ctx, o, append(slices.Clone(names), "status"), func(at int64, values [][]byte) error {
		return builder.Add(at, 1, string(values[len(names)]) != "429", values[:len(names)])
	})
	if err != nil {
		return err
	}
	for _, one := range found {
		if one.Stops {
			to.Unsure = append(to.Unsure, one.Text)
		} else {
			to.Notes = append(to.Notes, one.Text)
		}
	}
	to.Recording, to.Unread = builder.Recording(), unread
	return nil
}

// A share is the greatest share of requests that may be newly denied, from 0 to 1.
type share float64

// parseShare reads a percentage. Without one, given is nil and the share is 1.
func parseShare(given *string) (share, error) {
	if given == nil {
		return 1, nil
	}
	text := *given
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent && v != 0 || !(v >= 0 && v <= 100) {
		return 0, usage("--deny-at-most", "%q: write a percentage of requests, such as 0.1%% or 0%%", text)
	}
	return share(v / 100), nil
}

// check returns an error if rules newly deny more than the share, or if that is not known.
func (s share) check(r *rehearse.Report) error {
	if len(r.Unsure) > 0 {
		return fmt.Errorf("refused: %s", strings.Join(r.Unsure, "; "))
	}
	if r.NewlyDeniedShare > float64(s) {
		unread := ""
		if r.Unread > 0 {
			unread = fmt.Sprintf(", and %s in lines that could not be read", wording.Count(r.Unread, "request"))
		}
		return fmt.Errorf("refused: %s of requests would be newly denied (%d of %d%s), more than %s",
			rehearse.Percent(r.NewlyDeniedShare), r.NewlyDenied, r.Matched, unread, rehearse.Percent(float64(s)))
	}
	if r.Requests == 0 {
		return errors.New("refused: no request was counted, so nothing is known")
	}
	if len(r.Missing) > 0 {
		return fmt.Errorf("refused: the new rules look at %s, which was not recorded, so what they deny is not known: start the server with --record-attribute", strings.Join(r.Missing, ", "))
	}
	return nil
}

// rehearsed returns an error if a rules file newly denies more than --deny-at-most of the
// requests that a server recorded.
func (c *rulesPushCmd) rehearsed(e *env, name string, document []byte) error {
	if c.DenyAtMost == nil {
		return nil
	}
	gate, err := parseShare(c.DenyAtMost)
	if err != nil {
		return err
	}
	at := cmp.Or(c.RehearseAt, c.Server)
	if at == "" {
		return usage("--deny-at-most", "needs a server that has recorded requests: --rehearse-at names its admin address")
	}
	token := cmp.Or(c.RehearseTokenFile, c.TokenFile)
	report, err := rehearseOnServer(e.ctx, "--rehearse-at", at, token, rehearse.Query{Name: name, Document: string(document)})
	if _, wrong := errors.AsType[*usageError](err); wrong {
		return err
	}
	if err != nil {
		return fmt.Errorf("the rehearsal: %w; nothing was published", err)
	}
	if err := gate.check(report); err != nil {
		return fmt.Errorf("%w; nothing was published: stint rehearse says whom", err)
	}
	if !c.JSON {
		_, err = fmt.Fprintf(e.out, "rehearsed on %d requests: %s would be newly denied\n", report.Requests, rehearse.Percent(report.NewlyDeniedShare))
	}
	return err
}
