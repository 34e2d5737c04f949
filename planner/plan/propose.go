package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/wording"
)

// A Proposal is a rules file made from logs.
type Proposal struct {
	Log      LogReport `json:"log"`
	Findings []Finding `json:"findings"`
	// Questions are for the reader to answer before the rules deny: what a loose limit depends on,
	// and which clients stand apart.
	Questions []string `json:"questions"`
	// Routes are the routes with their limits, in the order of the file. There are none if a
	// finding forbids a proposal.
	Routes []Routed `json:"routes"`
	// File is the text of the rules file.
	File string `json:"file"`
}

// A Routed is a group of a route with its limit.
type Routed struct {
	Name string `json:"name"`
	// By is the attribute that identifies the clients, "" for their address. Tier is the class of
	// the clients, and TierBy the attribute that holds it.
	By     string `json:"by,omitempty"`
	TierBy string `json:"tier_by,omitempty"`
	Tier   string `json:"tier,omitempty"`
	// Unknown reports whether these are clients that the server never answered, or whose tier is
	// none of the other groups': they have no say, and no limit of their own.
	Unknown  bool     `json:"unknown,omitempty"`
	Patterns []string `json:"patterns"`
	Requests int64    `json:"requests"`
	Clients  int64    `json:"clients"`
	// Limit is empty where there are too few requests to choose from.
	Limit string `json:"limit"`
	// Apart are the clients that stand apart from the rest.
	Apart []Apart `json:"apart"`

	minute int64 // what Limit lets pass in a minute, without the margin
	sets   []setting
}

// A setting is what the limit of a route lets pass within a time, with and without the clients that it
// rests on.
type setting struct {
	within        time.Duration
	with, without int64
	by            []string
}

// An Apart is a client that had no say in the limit of a route.
type Apart struct {
	Key string `json:"key"`
	// Verdict is "abuse" for a client that was refused again and again, and "heavy" for others.
	Verdict string `json:"verdict"`
	// Denied is how many of its requests the limit denies.
	Denied   int64     `json:"denied"`
	Evidence *Evidence `json:"evidence"`

	id uint32
}

// A proposer finds the routes in the logs. Address and route together are the key of a client.
type proposer struct {
	*run
	byRoute map[string][]uint32
	full    bool // some paths were not counted
}

// Propose reads the logs and makes a rules file: a rule for each route in the logs, in shadow
// first. Its limit is the tightest that denies nothing to clients that do not stand apart.
func Propose(ctx context.Context, o Options) (*Proposal, error) {
	o.Key, o.routed, o.Brief, o.Choose = []string{"ip", "route"}, true, true, &Target{}
	q, err := newExtraction(&o, nil)
	if err != nil {
		return nil, err
	}
	from, _, _, err := o.sources(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(from)
	w := &proposer{run: &run{options: &o}, byRoute: make(map[string][]uint32)}
	if w.reading, err = newReading(&o, q, from); err != nil {
		return nil, err
	}
	if err := w.identify(ctx); err != nil {
		return nil, err
	}
	if err := w.reading.run(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(w.judge(), w.replay(ctx, w.ignored, &w.traffic.series, &w.curve)); err != nil {
		return nil, err
	}
	p := &Proposal{Findings: append([]Finding{}, w.findings()...), Questions: []string{}, Routes: []Routed{}, Log: w.logReport(false)}
	everywhere := make(map[string]struct{}) // clients, regardless of route
	for id := range uint32(w.clients.len()) {
		if !w.ignored[id] {
			client, route := w.clientOf(id)
			w.byRoute[route] = append(w.byRoute[route], id)
			everywhere[client] = struct{}{}
		}
	}
	p.Log.Clients = int64(len(everywhere))
	if stops(p.Findings) || w.requests == 0 {
		return p, nil
	}
	patterns := w.extraction.patterns
	for _, r := range append(slices.Clone(routes), route{name: pagesRoute}) {
		for _, g := range w.groups(r.name) {
			one, err := w.route(ctx, g, patterns[r.name])
			if err != nil {
				return nil, err
			}
			p.Routes = append(p.Routes, one)
		}
	}
	if !slices.ContainsFunc(p.Routes, func(r Routed) bool { return r.Limit != "" }) {
		p.Findings = append(p.Findings, Finding{"too_little", fmt.Sprintf("not enough to choose: no route has %d clients", leastClients), true})
		return p, nil
	}
	if w.full {
		p.Findings = append(p.Findings, Finding{"too_many_paths", "more different paths than are counted: some routes may be missing", false})
	}
	p.ask()
	p.File = w.file(p)
	return p, nil
}

// identify finds the identity of each route, and adds it to the attributes that are read.
func (w *proposer) identify(ctx context.Context) error {
	by, seen, err := w.options.survey(ctx, w.inputs)
	if err != nil {
		return err
	}
	for route, one := range by {
		if one.at = w.extraction.attribute(one.name); one.tier != "" {
			one.tierAt = w.extraction.attribute(one.tier)
		}
		by[route] = one
	}
	w.extraction.by, w.extraction.patterns, w.full = by, seen.patterns(), seen.full
	for _, in := range w.inputs {
		in.format = in.format.With(w.extraction.attributes)
	}
	return nil
}

// groups returns the groups of a route, the one by address last.
func (w *proposer) groups(route string) (all []group) {
	for key := range w.byRoute {
		if g := groupOf(key); g.route == route {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b group) int { return cmp.Or(cmp.Compare(b.by, a.by), cmp.Compare(a.tier, b.tier)) })
	return all
}

// clientOf returns the client and the group of a client's number.
func (w *proposer) clientOf(id uint32) (client, group string) {
	both := w.extraction.values(w.clients.key(id))
	return both[0], cmp.Or(both[1], pagesRoute)
}

// Thresholds for a client to stand apart on its route.
const (
	fewApart   = 100 // a person may send as many requests
	fewGuesses = 20  // a person may be refused as often
	mostApart  = 40  // clients of a route that are looked at
)

// A demander is a client of a route, and what it needs.
type demander struct {
	id   uint32
	most [len(rates)]int64
}

// passes returns the most that passes within a time under the tightest limit that denies the client
// nothing.
func (d *demander) passes(within time.Duration) int64 {
	return tightestFor([]demander{*d}).passes(within)
}

// tightestFor returns the tightest limit that denies none of the clients anything.
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

// route finds the limit of one group of a route.
func (w *proposer) route(ctx context.Context, g group, patterns []string) (Routed, error) {
	name := g.route
	one := Routed{Name: name, By: g.by, Tier: g.tier, TierBy: w.extraction.by[name].tier, Patterns: patterns, Apart: []Apart{}}
	if one.Unknown = g.tier == unknown; one.Unknown {
		one.Tier = ""
	}
	var all []demander
	for _, id := range w.byRoute[g.key()] {
		d := demander{id: id}
		for i := range rates {
			d.most[i] = int64(w.curve.demands.at(id).levels[i].most)
		}
		all = append(all, d)
		one.Requests += int64(w.sent[id])
	}
	if one.Clients = int64(len(all)); one.Unknown {
		return one, nil
	}
	slices.SortStableFunc(all, func(a, b demander) int { return cmp.Compare(b.passes(time.Minute), a.passes(time.Minute)) })
	var ids []uint32
	for _, d := range all[:min(len(all), mostApart)] {
		ids = append(ids, d.id)
	}
	if name == "login" { // a slow guesser is not among those that need the most
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
		ip, _ := w.clientOf(d.id)
		verdict := judge(e, name, i < edge)
		if verdict == "" {
			rest = append(rest, d)
			continue
		}
		one.Apart = append(one.Apart, Apart{Key: ip, Verdict: verdict, Evidence: e, id: d.id})
	}
	if len(rest) >= leastClients {
		best := tightestFor(rest)
		one.Limit, one.minute = grown(best, w.options.Margin), best.Minute
		w.setters(&one, rest)
		err = w.denied(ctx, &one)
	}
	return one, err
}

// setters finds the clients, of up to half of the networks, without which the limit of a route would
// let clearly less pass at once, in a minute or in an hour, even if they do not stand apart. Who owns
// a network may send from many of its addresses.
func (w *proposer) setters(r *Routed, all []demander) {
	best, nets := tightestFor(all), w.byNetwork(all)
	all = slices.Clone(all)
	for _, within := range []time.Duration{0, time.Minute, time.Hour} {
		most := func(a, b demander) int { return cmp.Compare(b.passes(within), a.passes(within)) }
		slices.SortStableFunc(nets, most)
		without := tightestFor(nets[len(nets)/2:]).passes(within)
		if best.passes(within) <= looser*without {
			continue
		}
		slices.SortStableFunc(all, most)
		above := min(looser*without, all[0].passes(within)-1) // a limit may rest on several that need less alone
		one := setting{within: within, with: best.passes(within), without: without}
		for _, d := range all {
			if who, _ := w.clientOf(d.id); d.passes(within) > above {
				one.by = append(one.by, who)
			}
		}
		same := func(o setting) bool {
			return slices.Equal(slices.Sorted(slices.Values(o.by)), slices.Sorted(slices.Values(one.by)))
		}
		if !slices.ContainsFunc(r.sets, same) {
			r.sets = append(r.sets, one)
		}
	}
}

// byNetwork returns a demander for each network, which needs the most that one of its clients needs.
func (w *proposer) byNetwork(all []demander) (nets []demander) {
	at := make(map[string]int)
	for _, d := range all {
		who, _ := w.clientOf(d.id)
		network := networkOf(who)
		i, known := at[network]
		if !known {
			i, nets = len(nets), append(nets, d)
			at[network] = i
		}
		for k := range d.most {
			nets[i].most[k] = max(nets[i].most[k], d.most[k])
		}
	}
	return nets
}

// denied counts what the limit of a route denies the clients that stand apart.
func (w *proposer) denied(ctx context.Context, r *Routed) error {
	if len(r.Apart) == 0 {
		return nil
	}
	p, err := newReplay(r.Limit)
	if err != nil {
		return err
	}
	skip := slices.Repeat([]bool{true}, w.clients.len())
	for _, a := range r.Apart {
		skip[a.id] = false
	}
	if err := w.replay(ctx, skip, newLedger(p)); err != nil {
		return err
	}
	for _, d := range p.denied[1:] {
		if i := slices.IndexFunc(r.Apart, func(a Apart) bool { return a.id == d.id }); i >= 0 {
			r.Apart[i].Denied = d.requests
		}
	}
	return nil
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

// deepest returns how many clients of a route count as few.
func deepest(clients int) int {
	return min(max(int(edgePart*float64(clients)), fewestEdge), mostApart, clients-1)
}

// edgeOf returns how many clients stand apart from the rest; see [Cliff]. The clients are in order
// of what they need.
func edgeOf(all []demander) (edge int) {
	last := int64(0)
	for i := range deepest(len(all)) + 1 {
		minute := all[i].passes(time.Minute)
		if i > 0 && float64(last) >= edgeFactor*float64(minute) {
			edge = i
		}
		last = minute
	}
	return edge
}

// judge returns the verdict on a client of a route, or "" for one like the others. Only what it did
// counts, and how it was answered: a client chooses its name and user agent itself.
func judge(e *Evidence, route string, apart bool) string {
	if e == nil {
		return ""
	}
	refused, failed := 0.0, 0.0
	for _, p := range e.Statuses {
		switch {
		case p.Text == "401" || p.Text == "403":
			refused += p.Share
		case p.Text == "404" || p.Text == "429":
			failed += p.Share
		}
	}
	switch {
	case refused >= mostlyPart && e.Requests >= fewGuesses && route == "login":
		return "abuse"
	case !apart || e.Requests < fewApart:
		return ""
	case refused+failed >= mostlyPart:
		return "abuse"
	}
	return "heavy"
}

// file writes the rules file.
func (w *proposer) file(p *Proposal) string {
	var b strings.Builder
	wrap(&b, "# ", fmt.Sprintf("stint plan --propose, from %s of %s. All rules are in shadow: they decide and count, and deny nobody yet.", wording.Count(w.requests, "request"), Duration(time.Duration(w.last-w.first))))
	wrap(&b, "# ", "Before it denies: "+w.options.retry())
	for i, question := range p.Questions {
		if i == 0 {
			b.WriteString("# Answer these first:\n")
		}
		wrap(&b, "#   ", question+"?")
	}
	w.options.settings(&b)
	declare(&b, p.Routes)
	b.WriteString("rules:\n")
	var others claims
	for start, end := 0, 0; start < len(p.Routes); start = end {
		for end < len(p.Routes) && p.Routes[end].Name == p.Routes[start].Name {
			end++
		}
		for all := p.Routes[start:end]; len(all) > 0; {
			n := 1
			for n < len(all) && all[n].By == all[0].By { // the tiers of one identity are one rule
				n++
			}
			w.rule(&b, all[:n], &others)
			all = all[n:]
		}
		others.add(p.Routes[start:end])
	}
	return b.String()
}

// claims are the requests that earlier rules hold. Later rules exclude them, since no limit should
// hold requests that it was not chosen from.
type claims struct {
	patterns []string
	keyed    []string // conditions: paths with the identity of their clients
}

// add claims the requests of a route that have a rule. In all, the group by address is last.
func (c *claims) add(all []Routed) {
	last := &all[len(all)-1]
	if last.By == "" && last.Limit != "" {
		c.patterns = append(c.patterns, last.Patterns...)
		return
	}
	if i := slices.IndexFunc(all, func(r Routed) bool { return r.By != "" && r.Limit != "" }); i >= 0 && len(all[i].Patterns) > 0 {
		c.keyed = append(c.keyed, fmt.Sprintf("{path: [%s], %s: true}", quoted(all[i].Patterns), all[i].By))
	}
}

// write writes the condition that excludes the claims from a rule.
func (c *claims) write(b *strings.Builder) {
	all := c.keyed
	if len(c.patterns) > 0 {
		all = append([]string{"{path: [" + quoted(c.patterns) + "]}"}, all...)
	}
	switch len(all) {
	case 0:
	case 1:
		fmt.Fprintf(b, "    unless: %s\n", all[0])
	default:
		fmt.Fprintf(b, "    unless: [%s]\n", strings.Join(all, ", "))
	}
}

// declare writes the attributes that are not known from HTTP, which callers must give.
func declare(b *strings.Builder, all []Routed) {
	var names []string
	for _, r := range all {
		for _, name := range []string{r.By, r.TierBy} {
			if name != "" && !strings.HasPrefix(name, "header.") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(b, "attributes: [%s] # whoever asks must say these\n", strings.Join(names, ", "))
	}
}

// retry returns the command that tries a rules file on a log.
func (o *Options) retry() string {
	var b strings.Builder
	b.WriteString("stint rehearse FILE")
	for _, f := range o.Files {
		b.WriteString(" --log " + wording.QuoteShell(f))
	}
	return b.String()
}

// rule writes the rule of a group, or of all tiers of one identity, and excludes the requests of
// earlier rules. Where there are too few requests for a limit, it says so.
func (w *proposer) rule(b *strings.Builder, tiers []Routed, before *claims) {
	r, enough := &tiers[0], false
	for _, one := range tiers {
		wrap(b, "  # ", fmt.Sprintf("%s: %s of %s.", one.title(), wording.Count(one.Requests, "request"), wording.Count(one.Clients, "client")))
		switch {
		case one.Unknown:
			b.WriteString("  #   no say: never answered, or of no tier. The least of this rule's limits holds these\n")
			continue
		case one.Limit == "":
			b.WriteString("  #   too little to choose from: no rule holds these\n")
			continue
		}
		enough = true
		for _, a := range neighbours(one.Apart) {
			wrap(b, "  #   ", "stands apart: "+plainText(a.name)+", "+a.what+"; "+a.Evidence.String())
		}
	}
	if !enough {
		return
	}
	name := r.Name
	if r.By != "" {
		name += "-by-" + strings.ReplaceAll(r.By, ".", "-")
	}
	fmt.Fprintf(b, "  - name: %s\n", name)
	r.match(b, w.extraction.by[r.Name].name)
	before.write(b)
	fmt.Fprintf(b, "    key: [%s]\n", cmp.Or(r.By, "ip"))
	if r.By != "" {
		b.WriteString("    on_missing: skip\n")
	}
	limited(b, tiers)
	exempt := &Options{Key: []string{cmp.Or(r.By, "ip")}}
	b.WriteString(exempt.overrides(slices.DeleteFunc(w.leaves.exempt(), func(name string) bool {
		return prefixOf(name).IsValid() != (r.By == "") // an address is the key of a client only where By is ""
	})))
	b.WriteString("    shadow: true\n")
}

// title names a group.
func (r *Routed) title() string {
	text := r.Name
	if r.By != "" {
		text += " by " + r.By
	}
	switch {
	case r.Unknown:
		text += ", unknown"
	case r.Tier != "":
		text += ", " + clip(plainText(r.Tier), 32)
	}
	return text
}

// match writes which requests the rule holds. by is the identity that some of the route's requests
// have.
func (r *Routed) match(b *strings.Builder, by string) {
	var all []string
	if len(r.Patterns) > 0 {
		all = append(all, "path: ["+quoted(r.Patterns)+"]")
	}
	if by != "" && r.By == "" {
		all = append(all, by+": false")
	}
	if len(all) > 0 {
		fmt.Fprintf(b, "    match: {%s}\n", strings.Join(all, ", "))
	}
}

func quoted(all []string) string {
	var b strings.Builder
	for i, text := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteYAML(text))
	}
	return b.String()
}

// limited writes the limit of a rule, or the limits of its tiers. The tightest of them is for
// clients without a known tier.
func limited(b *strings.Builder, tiers []Routed) {
	tiers = slices.DeleteFunc(slices.Clone(tiers), func(r Routed) bool { return r.Limit == "" })
	if tiers[0].Tier == "" {
		fmt.Fprintf(b, "    limits: [%s]\n", quoteYAML(tiers[0].Limit))
		return
	}
	var all []string
	least, lowest := int64(0), ""
	for _, one := range tiers {
		all = append(all, quoteYAML(one.Tier)+": "+quoteYAML(one.Limit))
		if lowest == "" || one.minute < least {
			least, lowest = one.minute, one.Tier
		}
	}
	fmt.Fprintf(b, "    tiers: {by: %s, default: %s, plans: {%s}}\n", tiers[0].TierBy, quoteYAML(lowest), strings.Join(all, ", "))
}

// Refused reports whether a finding forbids a proposal.
func (p *Proposal) Refused() bool { return p.File == "" }

// looser is how much more a limit may let pass without a question, compared with what the rest
// need, or with the limit without the few clients that set it.
const looser = 2

// ask asks the questions that the log cannot answer, about every limit that lets more pass than the
// rest need.
func (p *Proposal) ask() {
	ask := func(format string, args ...any) { p.Questions = append(p.Questions, fmt.Sprintf(format, args...)) }
	rest := &p.Routes[len(p.Routes)-1]
	var apart []string
	for i := range p.Routes {
		r := &p.Routes[i]
		if r.Limit != "" && len(r.Patterns) > 0 && rest.Limit != "" && r.minute > looser*rest.minute {
			ask("%s lets %s, and %s %s: do these paths reach nothing else, such as a program behind %s", r.title(), perTime(r.minute, time.Minute), rest.Name, perTime(rest.minute, time.Minute), r.Patterns[0])
		}
		for _, s := range r.sets {
			ask("%s lets %s because of %s, and without %d: are these clients like the others", r.title(), perTime(s.with, s.within), some(s.by), s.without)
		}
		if r.By != "" && r.Limit != "" {
			ask("%s counts by %s: who sends another with each request is held by no limit: does your server, or what is before it, refuse what it does not know", r.Name, r.By)
		}
		for _, a := range r.Apart {
			if !slices.Contains(apart, a.Key) {
				apart = append(apart, a.Key)
			}
		}
	}
	if len(apart) > 0 {
		ask("%s stand apart: is any of these known, such as a partner, an office or a health check, to be let through with --exempt", some(apart))
	}
}

// some names the first of many clients.
func some(all []string) string {
	const most = 6
	var who []string
	for _, key := range all[:min(len(all), most)] {
		who = append(who, clip(plainText(key), 64))
	}
	text := strings.Join(who, ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func perTime(n int64, within time.Duration) string {
	unit := map[time.Duration]string{0: "at once", time.Minute: "a minute", time.Hour: "an hour"}[within]
	return wording.Count(n, "request") + " " + unit + " pass"
}

// A neighbour is a client that stands apart, or several clients of one network.
type neighbour struct {
	Apart
	name, what string
}

// fewNeighbours is how many clients of one network are listed one by one.
const fewNeighbours = 7

// neighbours combines the clients of one network. The first stands for all.
func neighbours(all []Apart) (sums []neighbour) {
	networks := make(map[string][]Apart)
	for _, a := range all {
		networks[networkOf(a.Key)] = append(networks[networkOf(a.Key)], a)
	}
	for _, a := range all {
		network := networkOf(a.Key)
		some := networks[network]
		delete(networks, network)
		if len(some) <= fewNeighbours {
			for _, one := range some {
				sums = append(sums, neighbour{one, one.Key, one.fate(one.Denied, one.Evidence.Requests)})
			}
			continue
		}
		denied, requests := int64(0), int64(0)
		for _, one := range some {
			denied, requests = denied+one.Denied, requests+one.Evidence.Requests
		}
		sums = append(sums, neighbour{a, network, fmt.Sprintf("%d clients, %s, such as %s", len(some), a.fate(denied, requests), a.Key)})
	}
	return sums
}

// networkOf returns the network of an address, since a network often has one owner. Other keys are
// returned unchanged.
func networkOf(key string) string {
	p := prefixOf(key)
	bits := 48
	switch {
	case p.Addr().IsPrivate() || p.Addr().IsLoopback():
		return key // of many owners
	case p.Addr().Is4():
		bits = 24
	}
	if p, err := p.Addr().Prefix(bits); err == nil && p.IsValid() {
		return p.String()
	}
	return key
}

// fate says what the rules do to a client that stands apart.
func (a *Apart) fate(denied, requests int64) string {
	return fmt.Sprintf("%s, %s of %s denied", a.Verdict, wording.Grouped(denied), wording.Count(requests, "request"))
}
