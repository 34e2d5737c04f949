package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/accesslog"
)

// A Proposal is a rules file that was found from logs.
type Proposal struct {
	Log      LogReport `json:"log"`
	Findings []Finding `json:"findings"`
	// Routes are what was found, in the order of the file; none if the findings
	// forbid a proposal.
	Routes []Routed `json:"routes"`
	// File is the file.
	File string `json:"file"`
}

// A Routed is a route with its limit.
type Routed struct {
	Name     string   `json:"name"`
	Patterns []string `json:"patterns"`
	Requests int64    `json:"requests"`
	Clients  int64    `json:"clients"`
	// Limit is empty where there is too little to choose from, and for health
	// checks, which are let through.
	Limit string `json:"limit"`
	// Apart are clients that stand apart from the rest: denied, given a limit
	// of their own, or kept.
	Apart []Apart `json:"apart"`
}

// An Apart is a client that had no say in the limit of a route.
type Apart struct {
	Key string `json:"key"`
	// Verdict is "abuse" for one that the limit is to deny, or "partner" for
	// one with Limit of its own.
	Verdict  string    `json:"verdict"`
	Limit    string    `json:"limit,omitempty"`
	Evidence *Evidence `json:"evidence"`
}

// A proposer finds the routes of a reading, whose clients are told apart by
// address and route.
type proposer struct {
	*run
	byRoute map[string][]uint32
}

// Propose reads the logs and makes a rules file of them: a rule for each route
// that was found, with the tightest limit that denies nothing to those that do
// not stand apart, in shadow first.
func Propose(ctx context.Context, o Options) (*Proposal, error) {
	o.Key, o.routed, o.Brief, o.Choose = []string{"ip", "route"}, true, true, &Target{}
	from := o.sources()
	defer func() {
		for _, s := range from {
			s.close()
		}
	}()
	p, err := propose(ctx, o, from, nil)
	if errors.Is(err, errAstray) {
		p, err = propose(ctx, o, from, &sorter{})
	}
	return p, err
}

func propose(ctx context.Context, o Options, from []*source, by *sorter) (*Proposal, error) {
	q, err := newQuestion(&o, nil)
	if err != nil {
		return nil, err
	}
	w := &proposer{run: &run{options: &o}, byRoute: make(map[string][]uint32)}
	if w.reading, err = newReading(ctx, &o, q, from, nil); err != nil {
		return nil, err
	}
	if w.sorter = by; by == nil && w.backwards() {
		w.sorter = &sorter{}
	}
	w.sinks = []sink{&w.traffic.series, &w.curve}
	if err := w.reading.run(ctx); err != nil {
		return nil, err
	}
	if err := w.judge(); err != nil {
		return nil, err
	}
	p := &Proposal{Findings: append([]Finding{}, w.findings()...), Routes: []Routed{}, Log: w.logReport(false)}
	if stops(p.Findings) || w.requests == 0 {
		return p, nil
	}
	for id := range uint32(w.clients.len()) {
		if !w.ignored[id] {
			_, route := w.parts(id)
			w.byRoute[route] = append(w.byRoute[route], id)
		}
	}
	patterns, err := w.patterns(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range append(slices.Clone(routes), route{name: pagesRoute}) {
		if len(w.byRoute[r.name]) == 0 {
			continue
		}
		one, err := w.route(ctx, r.name, patterns[r.name])
		if err != nil {
			return nil, err
		}
		p.Routes = append(p.Routes, one)
	}
	p.File = w.file(p)
	return p, nil
}

// parts returns the address and the route of a client's number.
func (w *proposer) parts(id uint32) (ip, route string) {
	both := w.question.parts(w.clients.key(id))
	return both[0], cmp.Or(both[1], pagesRoute)
}

// patterns returns those of each route that paths of the log have.
func (w *proposer) patterns(ctx context.Context) (map[string][]string, error) {
	found := make(map[string][]string)
	for _, in := range w.inputs {
		file, err := in.open(ctx)
		if err != nil {
			return nil, err
		}
		seen := make(map[string]bool)
		eachValue(file, in.format.With([]string{"path"}).Parser(), func(path []byte) {
			name, pattern := routeOf(string(path))
			if pattern != "" && !seen[pattern] && len(seen) < mostKinds {
				seen[pattern] = true
				if !slices.Contains(found[name], pattern) {
					found[name] = append(found[name], pattern)
				}
			}
		})
		file.Close()
	}
	for _, all := range found {
		slices.Sort(all)
	}
	return found, nil
}

// eachValue calls f with the only attribute of each line of a log, where it is.
func eachValue(file *accesslog.File, p accesslog.Parser, f func(value []byte)) {
	r := accesslog.Record{Values: make([][]byte, 1)}
	for block, err := file.Next(nil); err == nil; block, err = file.Next(block) {
		for rest := block; len(rest) > 0; {
			var line []byte
			if line, rest = accesslog.Line(rest); p.Parse(line, &r) == nil && r.Values[0] != nil {
				f(r.Values[0])
			}
		}
	}
}

// What makes a client one that stands apart on its route.
const (
	fewApart   = 100 // requests that may be one person's
	fewGuesses = 20  // refused requests that may be a person's
	roomy      = 1.5 // of what it needs, for a limit of its own
	mostApart  = 40  // clients of a route that are looked at
)

// A demander is what a client of a route needs.
type demander struct {
	id   uint32
	most [len(rates)]int64
}

// minute is the most that the tightest limit lets pass that denies it nothing.
func (d *demander) minute() int64 { return tightestFor([]demander{*d}).Minute }

// tightestFor returns the tightest limit that denies none of them anything.
func tightestFor(all []demander) Candidate {
	var each []Candidate
	for i, r := range rates {
		most := int64(1)
		for _, d := range all {
			most = max(most, d.most[i])
		}
		each = append(each, candidate(r, roundUp(most)))
	}
	return tightest(each)
}

// route finds the limit of one route.
func (w *proposer) route(ctx context.Context, name string, patterns []string) (Routed, error) {
	one := Routed{Name: name, Patterns: patterns, Apart: []Apart{}}
	var all []demander
	for _, id := range w.byRoute[name] {
		d := demander{id: id}
		for i := range rates {
			d.most[i] = int64(w.curve.demands.at(id).most[i])
		}
		all = append(all, d)
		one.Requests += int64(w.sent[id])
	}
	one.Clients = int64(len(all))
	if name == "health" {
		return one, nil
	}
	slices.SortStableFunc(all, func(a, b demander) int { return cmp.Compare(b.minute(), a.minute()) })
	var ids []uint32
	for _, d := range all[:min(len(all), mostApart)] {
		ids = append(ids, d.id)
	}
	if name == "login" { // a slow guesser stands not among those that need the most
		ids = append(ids, w.busiest(all)...)
	}
	found, err := w.look(ctx, ids)
	if err != nil {
		return one, err
	}
	edge := edgeOf(all)
	rest := all[:0:0]
	for i, d := range all {
		e := found[w.name(d.id)]
		ip, _ := w.parts(d.id)
		verdict := judge(e, name, i < edge)
		if verdict == "" {
			rest = append(rest, d)
			continue
		}
		a := Apart{Key: ip, Verdict: verdict, Evidence: e}
		if verdict == "partner" {
			a.Limit = grown(tightestFor([]demander{d}), roomy-1)
		}
		one.Apart = append(one.Apart, a)
	}
	if len(rest) >= leastClients {
		one.Limit = grown(tightestFor(rest), w.options.Margin)
	}
	return one, nil
}

func grown(c Candidate, margin float64) string {
	return (&chooser{margin: margin}).withMargin(c).String()
}

// busiest returns the clients that sent the most.
func (w *proposer) busiest(all []demander) (ids []uint32) {
	ranked := slices.Clone(all)
	slices.SortStableFunc(ranked, func(a, b demander) int { return cmp.Compare(w.sent[b.id], w.sent[a.id]) })
	for _, d := range ranked[:min(len(ranked), mostApart/2)] {
		ids = append(ids, d.id)
	}
	return ids
}

// edgeOf returns how many clients stand apart from the rest, of those in order
// of what they need: see [Cliff].
func edgeOf(all []demander) (edge int) {
	deepest := min(max(int(edgePart*float64(len(all))), fewestEdge), mostApart, len(all)-1)
	last := int64(0)
	for i := range deepest + 1 {
		minute := all[i].minute()
		if i > 0 && float64(last) >= edgeFactor*float64(minute) {
			edge = i
		}
		last = minute
	}
	return edge
}

// judge says what a client is on its route, "" for one that is like the others.
// Nothing but what it did speaks: that it is refused, that it stands apart with
// one user agent, or that it has a name and is answered well.
func judge(e *Evidence, route string, apart bool) string {
	if e == nil {
		return ""
	}
	refused, missing, good := 0.0, 0.0, 0.0
	for _, p := range e.Statuses {
		switch {
		case p.Text == "401" || p.Text == "403":
			refused += p.Share
		case p.Text == "404":
			missing += p.Share
		case p.Text < "400":
			good += p.Share
		}
	}
	switch {
	case refused >= mostlyPart && e.Requests >= fewGuesses && route == "login":
		return "abuse"
	case !apart || e.Requests < fewApart:
		return ""
	case refused+missing >= mostlyPart:
		return "abuse"
	case e.Kinds >= manyAgents:
		return "" // many people
	case e.Named && good >= 1-fewErrors:
		return "partner"
	}
	return "abuse"
}

// file writes the rules.
func (w *proposer) file(p *Proposal) string {
	var b strings.Builder
	wrap(&b, "# ", fmt.Sprintf("stint plan --propose, from %s of %s. All rules are in shadow: they decide and count, and deny nobody yet.", plural(w.requests, "request"), Duration(time.Duration(w.last-w.first))))
	wrap(&b, "# ", "Before it denies: "+w.options.retry())
	w.options.settings(&b)
	b.WriteString("rules:\n")
	var others []string
	for _, r := range p.Routes {
		if r.Limit == "" && r.Name != "health" {
			wrap(&b, "  # ", fmt.Sprintf("%s: %s of %s are too little to choose from.", r.Name, plural(r.Requests, "request"), plural(r.Clients, "client")))
			continue
		}
		r.rule(&b, w.options, others)
		others = append(others, r.Patterns...)
	}
	return b.String()
}

// retry returns the command that tries a rules file on a log.
func (o *Options) retry() string {
	var b strings.Builder
	b.WriteString("stint plan --rules FILE")
	for _, f := range o.Files {
		b.WriteString(" " + quoteShell(f))
	}
	return b.String()
}

// rule writes the rule of a route, which leaves to those before it what is
// theirs.
func (r *Routed) rule(b *strings.Builder, o *Options, before []string) {
	wrap(b, "  # ", fmt.Sprintf("%s: %s of %s.", r.Name, plural(r.Requests, "request"), plural(r.Clients, "client")))
	for _, a := range r.Apart {
		if a.Verdict == "abuse" {
			wrap(b, "  #   ", "stands apart, and is denied: "+plainText(a.Key)+", "+a.Evidence.String())
		}
	}
	fmt.Fprintf(b, "  - name: %s\n", r.Name)
	list := func(field string, patterns []string) {
		var quoted []string
		for _, p := range patterns {
			quoted = append(quoted, quoteYAML(p))
		}
		if len(quoted) > 0 {
			fmt.Fprintf(b, "    %s: {path: [%s]}\n", field, strings.Join(quoted, ", "))
		}
	}
	list("match", r.Patterns)
	list("unless", before)
	if r.Name == "health" {
		b.WriteString("    unlimited: true\n")
		return
	}
	fmt.Fprintf(b, "    key: [ip]\n    limits: [%s]\n", quoteYAML(r.Limit))
	exempt := &Options{Key: []string{"ip"}, Exempt: o.Exempt}
	overrides := exempt.overrides()
	for i, a := range r.Apart {
		if a.Verdict != "partner" {
			continue
		}
		if overrides == "" {
			overrides = "    overrides:\n"
		}
		overrides += fmt.Sprintf("      # %s\n      - {name: partner-%d, when: {%s}, limits: [%s]}\n", clip(plainText(a.Evidence.String()), 200), i+1, exempt.meets(a.Key), quoteYAML(a.Limit))
	}
	b.WriteString(overrides + "    shadow: true\n")
}
