// Package plan answers from an access log which limit to set: what clients really send, what a
// limit would have done to them, and which limit is the tightest that would have denied at most a
// stated share of them.
//
// [Run] reads logs, sorts the requests by time and numbers the clients. The engine decides every
// request at the time in the log: package stint's own [meter.Meter], which every store uses, on a
// state for each client and limit.
//
// A request costs about a tenth of a microsecond to read, a few nanoseconds for each limit, and 24
// bytes. A client takes the text of its key and some fifty bytes, sixteen for each limit of the
// cheapest kind, and with the distribution and the arrival curves some three hundred.
package plan

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/wording"
)

// Options say which requests to read and what to report.
type Options struct {
	// Files are the logs; "-" is Stdin. Logs of different times are read one after another, in the
	// order of their times; logs of the same time are merged.
	Files []string
	Stdin io.Reader

	// Key is the attributes that tell clients apart. The default value is ip;
	// IPv6 addresses count by their network of 64 bits.
	Key []string
	// Match are conditions ATTRIBUTE=PATTERN, as in rules; requests that do not meet all of them
	// are left out.
	Match []string
	// Cost is the attribute with the cost of a request, such as bytes. By default each request
	// costs 1.
	Cost string
	// From and To bound the times of the requests that count: From ≤ time < To.
	From, To time.Time
	// Fields, Format and Latest are for accesslog.Options.
	Fields map[string]string
	Format string
	Latest time.Time
	// Zone is the zone of the report, and of times without one. The default value is UTC.
	Zone *time.Location
	// IgnoreKeys are clients that have no say, by their names in the report, or ranges of
	// addresses. A proposed rule applies to them, and the report says what it does to them.
	IgnoreKeys []string
	// Exempt are clients that have no say and that a proposed rule lets through by an override.
	Exempt []string
	// Client says where to find the address of a client behind proxies, as in a rules file. Without
	// trusted proxies it is the address in the log.
	Client httplimit.ClientIP

	// Limits are limits to try, as text, each on its own.
	Limits []string
	// Brief leaves out Report.Traffic, which takes more time than a limit does.
	Brief bool
	// Choose asks for the tightest limit that keeps to the target, with room to grow by Margin: 0.2
	// is a fifth.
	Choose *Target
	Margin float64

	// Most bounds how many requests are read: above it the reading ends with an error. The default
	// value is 200 million, at 24 bytes each.
	Most int

	// Progress is called about ten times a second while logs are read, with the bytes read and
	// their total, or 0 if the total is not known. It is called from another goroutine.
	Progress func(what string, read, of int64)

	routed bool // one value of the key is a path's route
}

func (o *Options) keyText() string { return strings.Join(o.Key, ",") }

// text returns a time in RFC 3339, in the zone of the report.
func (o *Options) text(at int64) string { return o.when(at).Format(time.RFC3339Nano) }

// A Report is the result of Run.
type Report struct {
	Log LogReport `json:"log"`
	// Findings are what to know about the log first.
	Findings []Finding `json:"findings"`
	Key      string    `json:"key"`
	// Traffic is what clients sent; nil with Options.Brief.
	Traffic *Traffic `json:"traffic,omitempty"`
	// Results has the result of each limit, in order.
	Results []Result `json:"results"`
	// Choice is the limit to try; nil unless asked for.
	Choice *Choice `json:"choice,omitempty"`

	asked bool // a choice was asked for
}

// Refused reports whether a proposal was asked for, and a finding forbids it.
func (r *Report) Refused() bool { return r.Choice == nil && stops(r.Findings) && r.asked }

// Partial reports whether some of the log was not read: it is damaged or cut off, or the reading
// was interrupted.
func (r *Report) Partial() bool {
	return r.Log.Interrupted || slices.ContainsFunc(r.Log.Files, func(f FileReport) bool { return f.Error != "" })
}

// A LogReport says what was read.
type LogReport struct {
	Files []FileReport `json:"files"`
	Lines int64        `json:"lines"`
	// Bad is how many lines could not be read, and BadRequests how many requests they may hold; Examples shows the
	// first of them.
	Bad         int64    `json:"bad"`
	BadRequests int64    `json:"bad_requests"`
	Examples    []string `json:"bad_examples"`
	// Aside is how many lines the server wrote about itself, such as errors.
	Aside int64 `json:"no_requests,omitempty"`
	// Outside is how many requests were before From or after To. Unmatched did not meet the
	// conditions. Ignored were of clients that are left out.
	Outside   int64 `json:"outside"`
	Unmatched int64 `json:"unmatched"`
	Ignored   int64 `json:"ignored"`
	// Reordered is how many lines were put back in order.
	Reordered int64 `json:"reordered"`
	// Missing is how many requests lacked an attribute of the key, by attribute; all of them count
	// as one client.
	Missing map[string]int64 `json:"missing"`
	// Costless is how many requests had no readable cost; they cost 1.
	Costless int64 `json:"costless"`
	Requests int64 `json:"requests"`
	Clients  int64 `json:"clients"`
	// Interrupted reports whether the reading was interrupted.
	Interrupted bool `json:"interrupted"`
	// Memory is how many bytes clients take, and States how many their states take.
	Memory int `json:"memory"`
	States int `json:"states"`
}

// A FileReport says what was read of one file.
type FileReport struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Lines  int64  `json:"lines"`
	Bad    int64  `json:"bad"`
	// NULs is how many NUL bytes precede the first line.
	NULs int64 `json:"nuls,omitempty"`
	// Error says why the file could not be read to its end.
	Error string `json:"error,omitempty"`
}

// Check returns what is wrong with the options. The error names the limit or the condition.
func (o *Options) Check() error {
	for _, text := range o.Limits {
		if _, err := newReplay(text); err != nil {
			return err
		}
	}
	_, err := newExtraction(o, nil)
	return err
}

// A run is the state of one call of Run.
type run struct {
	*reading
	options *Options
	traffic traffic
	curve   curve
	replays []*replay
	ledger  *ledger
	notes   []Finding
}

// Run reads the logs and reports. If the context ends, the report covers what was read until then,
// and says so.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Key) == 0 {
		o.Key = []string{"ip"}
	}
	q, err := newExtraction(&o, nil)
	if err != nil {
		return nil, err
	}
	from, ctx, ended, err := o.sources(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(from)
	w := &run{options: &o}
	if w.reading, err = newReading(&o, q, from); err != nil {
		return nil, err
	}
	sinks, err := w.prepare()
	if err != nil {
		return nil, err
	}
	cut := w.run(ctx)
	if cut != nil && !interrupted(cut) {
		return nil, cut
	}
	if err := w.judge(); err != nil {
		return nil, err
	}
	if err := w.replay(context.WithoutCancel(ctx), w.ignored, sinks...); err != nil {
		return nil, err
	}
	return w.report(ctx, ended || cut != nil)
}

// prepare makes the sinks.
func (w *run) prepare() ([]sink, error) {
	o := w.options
	sinks := []sink{}
	if o.Brief {
		sinks = append(sinks, &w.traffic.series)
	} else {
		sinks = append(sinks, &w.traffic)
	}
	if o.Choose != nil {
		sinks = append(sinks, &w.curve)
	}
	for _, text := range o.Limits {
		r, err := newReplay(text)
		if err != nil {
			return nil, err
		}
		w.replays = append(w.replays, r)
	}
	if len(w.replays) > 0 {
		w.ledger = newLedger(w.replays...)
		sinks = append(sinks, w.ledger)
	}
	return sinks, nil
}

// report collects the results of the sinks.
func (w *run) report(ctx context.Context, cut bool) (*Report, error) {
	o := w.options
	w.wholeSeconds(adder(&w.notes))
	report := &Report{Key: o.keyText(), Results: []Result{}, asked: o.Choose != nil, Findings: append(append([]Finding{}, w.findings()...), w.notes...)}
	who := reportData{
		options: o, series: &w.traffic.series.timeline, weighed: w.extraction.cost >= 0, name: w.name,
		clients: w.counted(), sent: w.traffic.sent,
	}
	if !o.Brief {
		report.Traffic = w.traffic.report(w.reading)
	}
	for _, r := range w.replays {
		report.Results = append(report.Results, r.report(who))
	}
	if o.Choose != nil && !cut && w.requests > 0 && !stops(report.Findings) {
		c := &chooser{target: *o.Choose, margin: o.Margin, reading: w.reading}
		if report.Traffic != nil {
			c.outliers = len(report.Traffic.Outliers)
		}
		choice, err := c.choose(ctx, w.reading, &w.curve, who)
		switch {
		case interrupted(err):
			cut = true
		case err != nil:
			return nil, err
		}
		report.Choice = choice
	}
	if err := w.testify(ctx, report); err != nil && !interrupted(err) {
		return nil, err
	}
	report.Log = w.logReport(cut)
	return report, nil
}

// testify adds what the denied clients did, and writes the rule.
func (w *run) testify(ctx context.Context, report *Report) error {
	var results []*Result
	if c := report.Choice; c != nil {
		results = append(results, &c.Would)
	}
	if !w.options.Brief {
		for i := range report.Results {
			results = append(results, &report.Results[i])
		}
	}
	var ids []uint32
	for _, res := range results {
		for _, d := range res.Top {
			ids = append(ids, d.id)
		}
	}
	if c := report.Choice; c != nil {
		for _, s := range c.Sets {
			ids = append(ids, s.id)
		}
	}
	found, err := w.look(ctx, ids)
	for _, res := range results {
		for i := range res.Top {
			res.Top[i].Evidence = found[res.Top[i].Key]
		}
	}
	if c := report.Choice; c != nil {
		for i := range c.Sets {
			c.Sets[i].Evidence = found[c.Sets[i].Key]
		}
		c.Rule = w.options.rule(c, w.leaves.exempt())
	}
	return err
}

func (w *run) logReport(cut bool) LogReport {
	l := LogReport{
		Files: []FileReport{}, Lines: w.tally.lines, Bad: w.tally.bad, BadRequests: w.tally.lost, Aside: w.tally.aside, Examples: append([]string{}, w.tally.examples...),
		Outside: w.tally.outside, Unmatched: w.tally.unmatched, Ignored: w.excluded,
		Reordered: w.reordered, Missing: map[string]int64{},
		Requests: w.requests, Clients: w.counted(), Interrupted: cut, Memory: w.clients.bytes(),
	}
	if w.extraction.cost >= 0 {
		l.Costless = w.tally.costless
	}
	for _, in := range w.inputs {
		l.Files = append(l.Files, in.about)
	}
	for i, n := range w.missing {
		if n > 0 {
			l.Missing[w.extraction.attributes[w.extraction.key[i]]] = n
		}
	}
	if w.ledger != nil {
		l.States = w.ledger.bytes()
	}
	return l
}

// counted returns how many clients are not ignored.
func (r *reading) counted() int64 {
	n := int64(r.clients.len())
	for _, out := range r.ignored {
		if out {
			n--
		}
	}
	return n
}

// name returns the name of a client.
func (r *reading) name(id uint32) string {
	return strings.ToValidUTF8(r.extraction.name(r.clients.key(id)), "?")
}

// rule returns a rules file that has the limit, in shadow first, and comments on what it denies.
// Exempt clients are let through.
func (o *Options) rule(c *Choice, exempt []string) string {
	var b strings.Builder
	w := &c.Would
	o.settings(&b)
	b.WriteString("rules:\n")
	wrap(&b, "  # ", fmt.Sprintf("stint plan chose this from %s of %s, to deny at most %s.", wording.Count(w.Requests, "request"), wording.Count(w.Clients, "client"), c.Target))
	if w.Denied == 0 {
		b.WriteString("  # On that log it denies nothing.\n")
	} else {
		wrap(&b, "  # ", fmt.Sprintf("On that log it denies %s, of %s:", wording.Count(w.Denied, "request"), wording.Count(w.ClientsDenied, "client")))
	}
	for _, d := range w.Top {
		line := fmt.Sprintf("%s: %s of %s denied", clip(plainText(d.Key), 64), wording.Grouped(d.Denied), wording.Grouped(d.Requests))
		if e := d.Evidence; e != nil && e.Looks != "" {
			line += "; " + e.Looks
		}
		wrap(&b, "  #   ", line)
	}
	if n := w.ClientsDenied - int64(len(w.Top)); n > 0 {
		fmt.Fprintf(&b, "  #   and %s more\n", wording.Grouped(n))
	}
	b.WriteString("  - name: by-" + strings.NewReplacer(".", "-", ",", "-").Replace(o.keyText()) + "\n")
	b.WriteString(matchYAML(o.Match))
	b.WriteString("    key: [" + strings.Join(o.Key, ", ") + "]\n")
	b.WriteString("    limits: [" + quoteYAML(c.Limit) + "]\n")
	if o.Cost != "" && o.Cost != "1" {
		b.WriteString("    # each request costs its " + o.Cost + ": say how under cost\n")
	}
	b.WriteString(o.overrides(exempt))
	b.WriteString("    shadow: true # decides and counts, denies nobody yet\n")
	return b.String()
}

// settings writes the settings of a rules file.
func (o *Options) settings(b *strings.Builder) {
	if len(o.Client.Trusted) > 0 {
		var all []string
		for _, p := range o.Client.Trusted {
			all = append(all, quoteYAML(p.String()))
		}
		b.WriteString("trusted_proxies: [" + strings.Join(all, ", ") + "]\n")
		if o.Client.Header != "" {
			b.WriteString("client_ip_header: " + quoteYAML(o.Client.Header) + "\n")
		}
	}
}

// matchYAML writes conditions as a rule has them. One of several conditions for the same attribute
// is enough.
func matchYAML(conditions []string) string {
	var names []string
	wants := make(map[string][]string)
	for _, c := range conditions {
		name, want, _ := strings.Cut(c, "=")
		if wants[name] == nil {
			names = append(names, name)
		}
		wants[name] = append(wants[name], quoteYAML(want))
	}
	var b strings.Builder
	for i, name := range names {
		if i == 0 {
			b.WriteString("    match:\n")
		}
		b.WriteString("      " + name + ": [" + strings.Join(wants[name], ", ") + "]\n")
	}
	return b.String()
}

// quoteYAML puts text in single quotes, or in double quotes with escapes where some of it is not
// printable.
func quoteYAML(s string) string {
	if s = strings.ToValidUTF8(s, "?"); plainText(s) != s {
		return strconv.Quote(s)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// command returns the command that tries the limit on a later log.
func (o *Options) command(limit stint.Limit) string {
	var b strings.Builder
	b.WriteString("stint plan --limit " + wording.QuoteShell(limit.String()))
	if o.keyText() != "ip" {
		b.WriteString(" --key " + wording.QuoteShell(o.keyText()))
	}
	for _, m := range o.Match {
		b.WriteString(" --match " + wording.QuoteShell(m))
	}
	if o.Cost != "" && o.Cost != "1" {
		b.WriteString(" --cost " + wording.QuoteShell(o.Cost))
	}
	for _, key := range o.Exempt {
		b.WriteString(" --exempt " + wording.QuoteShell(key))
	}
	for _, p := range o.Client.Trusted {
		b.WriteString(" --trusted-proxies " + wording.QuoteShell(p.String()))
	}
	if len(o.Client.Trusted) > 0 && o.Client.Header != "" {
		b.WriteString(" --client-ip-header " + wording.QuoteShell(o.Client.Header))
	}
	if o.Format != "" {
		b.WriteString(" --format " + wording.QuoteShell(o.Format))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Fields)) {
		b.WriteString(" --field " + wording.QuoteShell(name+"="+o.Fields[name]))
	}
	if o.Zone != nil && o.Zone != time.UTC {
		b.WriteString(" --tz " + wording.QuoteShell(o.Zone.String()))
	}
	for _, f := range o.Files {
		b.WriteString(" " + wording.QuoteShell(f))
	}
	return b.String()
}
