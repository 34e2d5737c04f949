package plan

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/stint-dev/stint/internal/wording"
)

// A section is a titled part of a report. The terminal and the page show the same sections.
type section struct {
	ID, Title string
	Class     string // the class on the page
	Parts     []part
	drawn     bool // only the page shows it
}

// A part of a section is a paragraph, a list, a table, a text to copy, or a drawing. It may have a
// heading.
type part struct {
	Head  string
	Say   string
	Big   string // the answer, in large type
	Items []item
	Table *table
	Code  string
	Lists bool          // the items are sentences
	Fold  bool          // on the page, it is closed at first
	Page  template.HTML // a drawing, for the page alone
}

// An item is a sentence, or a client and what happened to it.
type item struct{ Name, What, More string }

// A table has names in its first column.
type table struct {
	Caption string
	Columns []column
	Rows    []row
}

// A column has a name, in which "|" marks a new line on the terminal, and a width there. A negative
// width is for words.
type column struct {
	Name  string
	width int
}

// Names reports whether the column has words.
func (c column) Names() bool { return c.width < 0 }

// Words returns the name for the page.
func (c column) Words() string { return strings.ReplaceAll(c.Name, "|", " ") }

// A row may be marked by words.
type row struct {
	Cells []string
	Mark  string
	Class string // the class on the page
}

// document returns the sections of the report.
func (r *Report) document() (all []section) {
	tried := r.Results
	if c := r.Choice; c != nil {
		tried = append([]Result{c.Would}, tried...)
		all = append(all, c.answer(), c.Cliff.section())
	}
	t := r.Traffic
	if t != nil && t.Requests > 0 {
		all = append(all, t.overTime(tried), t.byClient())
	}
	if len(r.Results) > 0 {
		all = append(all, resultsSection(r.Results))
	}
	if t != nil && len(t.Heaviest) > 0 {
		all = append(all, t.heaviest(r.Key))
	}
	return all
}

// answer returns the section with the choice, the clients that it denies and its reasons.
func (c *Choice) answer() section {
	w := &c.Would
	parts := []part{{Big: c.Limit}, {Say: fmt.Sprintf("The tightest limit that denies at most %s is %s; with %.0f%% to grow it is this. On this log it would have denied %s of %s (%s), of %s of %s (%s).",
		c.Target, c.Tightest, 100*c.Margin,
		wording.Grouped(w.Denied), wording.Count(w.Requests, "request"), share(w.Denied, w.Requests),
		wording.Grouped(w.ClientsDenied), wording.Count(w.Clients, "client"), share(w.ClientsDenied, w.Clients))}}
	if w.Denied > 0 {
		parts = append(parts, part{Head: "Whom it would deny", Items: w.denied()})
	}
	if len(c.Sets) > 0 {
		set := part{Head: "Who sets it: a tighter one would deny these first"}
		for _, s := range c.Sets {
			one := item{Name: s.Key, What: fmt.Sprintf("needs a burst of %s", wording.Grouped(s.Burst))}
			if s.Evidence != nil {
				one.More = s.Evidence.String()
			}
			set.Items = append(set.Items, one)
		}
		parts = append(parts, set)
	}
	if len(c.Left) > 0 {
		out := part{Head: "Those that had no say"}
		for _, l := range c.Left {
			fate := fmt.Sprintf("%s of %s denied", wording.Grouped(l.Denied), wording.Count(l.Requests, "request"))
			if l.Exempt {
				fate = fmt.Sprintf("exempt: all of %s pass", wording.Count(l.Requests, "request"))
			}
			out.Items = append(out.Items, item{Name: l.Key, What: fate})
		}
		parts = append(parts, out)
	}
	sure := part{Head: "How sure that is", Lists: true}
	for _, d := range c.Doubts {
		sure.Items = append(sure.Items, item{What: d})
	}
	return section{ID: "choice", Title: "What to choose", Class: "answer", Parts: append(parts, sure,
		part{Head: "The rule, in shadow first", Code: c.Rule}, part{Head: "To look again later", Code: wrapCommand(c.Check)})}
}

// denied lists the clients that were denied most, and what they did.
func (res *Result) denied() (all []item) {
	for _, d := range res.Top {
		one := item{Name: d.Key, What: wording.Grouped(d.Denied) + " denied"}
		if d.Requests > 0 {
			one.What += " of " + wording.Grouped(d.Requests)
		}
		if d.Evidence != nil {
			one.More = d.Evidence.String()
		}
		all = append(all, one)
	}
	if n := res.ClientsDenied - int64(len(res.Top)); n > 0 {
		all = append(all, item{Name: fmt.Sprintf("and %s more", wording.Grouped(n))})
	}
	return all
}

// section shows which clients are denied as the limit tightens.
func (all *Cliff) section() section {
	s := section{ID: "cliff", Title: "Who falls off as the limit tightens"}
	if len(all.Steps) > 1 {
		s.Parts = append(s.Parts, part{Page: cliffChart(all) + `<ul class="key"><li class="curve">clients denied, by what a limit lets pass in a minute</li></ul>`})
	}
	t := &table{Columns: []column{{"limit", -20}, {"a minute", 9}, {"clients|denied", 7}, {"who falls here", -20}}}
	for i := range all.Steps {
		one := &all.Steps[i]
		r := row{Cells: []string{one.Limit, wording.Grouped(one.Minute), wording.Grouped(one.Clients), one.Named()}}
		switch {
		case one.Chosen && one.Edge:
			r.Mark, r.Class = "chosen, at the cliff", "tightest"
		case one.Chosen:
			r.Mark, r.Class = "chosen", "tightest"
		case one.Edge:
			r.Mark = "the cliff is below"
		}
		t.Rows = append(t.Rows, r)
	}
	s.Parts = append(s.Parts, part{Table: t})
	if all.Advice != "" {
		s.Parts = append(s.Parts, part{Say: all.Advice + "."})
	}
	return s
}

// overTime shows the requests over time, and those that limits deny.
func (t *Traffic) overTime(tried []Result) section {
	var b strings.Builder
	if len(tried) > 0 {
		b.WriteString("<fieldset class=\"choice\"><legend>Shown as denied</legend>\n")
		for i, one := range tried {
			checked := ""
			if i == 0 {
				checked = " checked"
			}
			fmt.Fprintf(&b, "<label><input type=\"radio\" name=\"shown\" value=\"%d\"%s> %s</label>\n", i, checked, template.HTMLEscapeString(one.Limit))
		}
		b.WriteString("</fieldset>\n")
	}
	b.WriteString(string(timeChart(t, tried)) + `<ul class="key"><li class="all">requests</li>`)
	if len(tried) > 0 {
		b.WriteString(`<li class="denied">of these, denied</li>`)
	}
	b.WriteString("</ul>")
	about := "None."
	if !t.From.IsZero() {
		about = fmt.Sprintf("%s to %s, %s.", stamp(t.From), stamp(t.To), Duration(t.To.Sub(t.From)))
	}
	if t.Units > 0 {
		about += fmt.Sprintf(" %s units.", wording.Grouped(t.Units))
	}
	return section{ID: "time", Title: "Requests over time", Parts: []part{{Say: about}, {Page: template.HTML(b.String())}}}
}

// byClient shows the most that clients send.
func (t *Traffic) byClient() section {
	all := &table{Caption: "So many clients never sent more in one", Columns: []column{{"of the clock", -12}, {"50%", 9}, {"90%", 9}, {"99%", 9}, {"99.9%", 9}, {"all", 9}}}
	for _, d := range t.Clocks {
		all.Rows = append(all.Rows, row{Cells: []string{d.Per, wording.Grouped(d.P50), wording.Grouped(d.P90), wording.Grouped(d.P99), wording.Grouped(d.P999), wording.Grouped(d.Max)}})
	}
	return section{ID: "clients", Title: "Clients by what they send", drawn: true, Parts: []part{{Table: all}}}
}

// resultsSection shows what each limit would have done.
func resultsSection(all []Result) section {
	t := &table{Columns: []column{{"limit", -28}, {"requests|denied", 9}, {"share", 7}, {"clients|denied", 9}, {"share", 7}, {"longest|lock-out", 9}}}
	s := section{ID: "results", Title: "What a limit would have done", Parts: []part{{Table: t}}}
	for i := range all {
		r := &all[i]
		t.Rows = append(t.Rows, row{Cells: []string{r.Limit, wording.Grouped(r.Denied), share(r.Denied, r.Requests), wording.Grouped(r.ClientsDenied), share(r.ClientsDenied, r.Clients), r.LongestLockout.String()}})
		if r.Denied == 0 {
			continue
		}
		say := fmt.Sprintf("Denied first: %s, %s.", r.FirstDenied, r.When())
		if r.LongestLockout > 0 {
			say += fmt.Sprintf(" Longest in which nothing passed: %s, %s.", r.LockedOut, r.LongestLockout)
		}
		if r.UnitsDenied > 0 {
			say += fmt.Sprintf(" Units denied: %s.", wording.Grouped(r.UnitsDenied))
		}
		s.Parts = append(s.Parts, part{Head: r.Limit, Say: say, Items: r.denied(), Fold: true})
	}
	return s
}

// heaviest shows the clients that sent the most.
func (t *Traffic) heaviest(key string) section {
	all := &table{Columns: []column{{key, -32}, {"requests", 9}, {"share", 7}, {"in one|second", 7}, {"minute", 7}, {"hour", 7}}}
	for _, h := range t.Heaviest {
		all.Rows = append(all.Rows, row{Cells: []string{h.Key, wording.Grouped(h.Requests), share(h.Requests, t.Requests), wording.Grouped(h.Second), wording.Grouped(h.Minute), wording.Grouped(h.Hour)}})
	}
	s := section{ID: "heaviest", Title: "The heaviest clients", Parts: []part{{Table: all}}}
	if len(t.Outliers) > 0 {
		far := part{Say: fmt.Sprintf("Far from the rest: in its busiest minute, each of these sent over %d times what 99%% of the clients stay within. If that is abuse, leave it out of the choice with --ignore-key.", outlierFactor)}
		for _, h := range t.Outliers {
			far.Items = append(far.Items, item{Name: h.Key, What: wording.Grouped(h.Minute) + " a minute"})
		}
		s.Parts = append(s.Parts, far)
	}
	return s
}

// document returns the sections of the proposal.
func (p *Proposal) document(name string) []section {
	if p.File == "" {
		return nil
	}
	routes := &table{Columns: []column{{"route", -24}, {"requests", 10}, {"clients", 8}, {"limit", -18}}}
	who := part{Head: "Who stands apart"}
	for _, r := range p.Routes {
		limit := r.Limit
		if limit == "" {
			limit = "too little to say"
		}
		routes.Rows = append(routes.Rows, row{Cells: []string{r.title(), wording.Grouped(r.Requests), wording.Grouped(r.Clients), limit}})
		for _, a := range neighbours(r.Apart) {
			if r.Limit == "" {
				a.what = a.Verdict + ", no rule"
			}
			who.Items = append(who.Items, item{Name: a.name, What: a.what, More: r.title() + ": " + fmt.Sprint(a.Evidence)})
		}
	}
	parts := []part{{Table: routes}}
	if len(who.Items) > 0 {
		parts = append(parts, who)
	}
	if len(p.Questions) > 0 {
		ask := part{Head: "Before it denies", Lists: true}
		for _, q := range p.Questions {
			ask.Items = append(ask.Items, item{What: q + "?"})
		}
		parts = append(parts, ask)
	}
	quoted := wording.QuoteShell(name)
	return []section{{Title: "A limit for each route", Parts: append(parts,
		part{Head: "Written to " + name + ", all in shadow. Then", Code: "    stint validate " + quoted + "\n    stint rehearse " + quoted + " --log LATER.log"})}}
}
