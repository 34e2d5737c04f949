package plan

import (
	"encoding/json"
	"fmt"
	"strings"
)

// markup is text that is part of the page as it stands.
type markup string

// A page is HTML as far as it is written.
type page struct{ strings.Builder }

// put writes a format whose arguments stand where %s and the like do. All of
// them but markup are escaped: they may stand between tags and in a quoted
// attribute.
func (p *page) put(format string, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case markup:
		case fmt.Stringer:
			args[i] = escape(arg.String())
		case string:
			args[i] = escape(arg)
		}
	}
	fmt.Fprintf(p, format, args...)
}

// iff writes markup if that is so.
func iff(is bool, text markup) markup {
	if is {
		return text
	}
	return ""
}

// escape writes text so that no character of it is markup.
func escape(text string) string { return escaper.Replace(text) }

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "\x00", "\uFFFD")

// head writes what is above all sections.
func (p *page) head(r *Report) {
	p.put(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>stint plan: %s</title>
<style>%s</style>
</head>
<body>
<header>
<h1>Which limit? <span>%s</span></h1>
<p>Clients are told apart by %s.`, pagePolicy, &r.Log, markup(pageCSS), &r.Log, r.Key)
	if r.Log.Bad > 0 {
		p.put(" %s of %s lines could not be read.", number(r.Log.Bad), number(r.Log.Lines))
	}
	p.put("%s</p>\n", iff(r.Log.Interrupted, " <strong>Interrupted: this is of a part of the log.</strong>"))
	for _, f := range r.Findings {
		p.put("<p class=\"finding%s\">%s%s.</p>\n", iff(f.Stops, " stops"), iff(f.Stops, "<strong>No proposal.</strong> "), f.Text)
	}
	p.put("<dl class=\"facts\">\n")
	p.put("<div><dt>requests</dt><dd>%s</dd></div>\n", number(r.Log.Requests))
	p.put("<div><dt>clients</dt><dd>%s</dd></div>\n", number(r.Log.Clients))
	if r.Traffic != nil {
		for _, b := range r.Traffic.Busiest {
			p.put("<div><dt>busiest %s</dt><dd>%s <small>%s</small></dd></div>\n", b.Per, number(b.Requests), stamp(b.At))
		}
	}
	p.put("</dl>\n</header>\n<main>\n")
}

// section begins a section by that name.
func (p *page) section(id, title string) {
	p.put("\n<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n", id, id, title)
}

// table begins a table, that of the section named by id, with a caption unless it
// is empty; the head's columns are markup.
func (p *page) table(id, caption string, columns ...markup) {
	p.put(`<div class="wide" role="group" tabindex="0" aria-labelledby="%s"><table>`+"\n", id)
	if caption != "" {
		p.put("<caption>%s</caption>\n", caption)
	}
	p.columns(columns)
}

func (p *page) columns(columns []markup) {
	p.put("<thead><tr>")
	for _, c := range columns {
		if c == whoColumn {
			p.put(`<th scope="col" class="names">%s</th>`, c)
			continue
		}
		p.put(`<th scope="col">%s</th>`, c)
	}
	p.put("</tr></thead>\n<tbody>")
}

// whoColumn has names, which need more room.
const whoColumn markup = "who falls here"

func (p *page) endTable() { p.put("</tbody></table></div>\n") }

// choice writes what to choose, and who would be denied by it.
func (p *page) choice(c *Choice) {
	p.put("\n<section class=\"answer\" aria-labelledby=\"choice\">\n<h2 id=\"choice\">What to choose</h2>\n")
	p.put("<p class=\"limit-text\"><code>%s</code></p>\n", c.Limit)
	p.put("<p>The tightest limit that denies at most %s is %s; with %.0f%% to grow it is this. On this log it would have denied <strong>%s</strong> of %s (%s), of <strong>%s</strong> of %s (%s).</p>\n",
		c.Target, c.Tightest, 100*c.Margin,
		number(c.Would.Denied), plural(c.Would.Requests, "request"), share(c.Would.Denied, c.Would.Requests),
		number(c.Would.ClientsDenied), plural(c.Would.Clients, "client"), share(c.Would.ClientsDenied, c.Would.Clients))
	if len(c.Would.Top) > 0 {
		p.put("<h3>Whom it would deny</h3>\n<ul class=\"who\">")
		for _, d := range c.Would.Top {
			p.put("<li><strong>%s</strong>: %s denied", d.Key, number(d.Denied))
			if d.Requests > 0 {
				p.put(" of %s", number(d.Requests))
			}
			p.evidence(d.Evidence)
			p.put("</li>\n")
		}
		p.put("</ul>\n")
	}
	if len(c.Left) > 0 {
		p.put("<h3>Those that had no say</h3>\n<ul>")
		for _, l := range c.Left {
			if l.Exempt {
				p.put("<li>%s: exempt, all of %s pass</li>\n", l.Key, plural(l.Requests, "request"))
			} else {
				p.put("<li>%s: %s of %s denied</li>\n", l.Key, number(l.Denied), plural(l.Requests, "request"))
			}
		}
		p.put("</ul>\n")
	}
	p.put("<h3>How sure that is</h3>\n<ul>")
	for _, text := range c.Doubts {
		p.put("<li>%s</li>\n", text)
	}
	p.put("</ul>\n<h3>The rule, in shadow first</h3>\n<pre>%s</pre>\n<h3>To look again later</h3>\n<pre>%s</pre>\n</section>\n", c.Rule, c.Check)
}

// evidence writes what is known of a client, if anything is.
func (p *page) evidence(e *Evidence) {
	if e == nil {
		return
	}
	if e.Looks != "" {
		p.put(", <em>%s</em>", e.Looks)
	}
	p.put("<small>%s</small>", e)
}

// cliff writes who falls off as the limit tightens.
func (p *page) cliff(c *Cliff) {
	p.section("cliff", "Who falls off as the limit tightens")
	if len(c.Steps) > 1 {
		p.put("%s\n<ul class=\"key\"><li class=\"curve-4\">clients denied, by what a limit lets pass in a minute</li></ul>", cliffChart(c))
	}
	p.put("\n")
	if c.Advice != "" {
		p.put("<p>%s.</p>\n", c.Advice)
	}
	p.table("cliff", "", "limit", "a minute", "clients denied", whoColumn)
	for i := range c.Steps {
		s := &c.Steps[i]
		p.put("<tr%s><th scope=\"row\">%s%s%s</th><td>%s</td><td>%s</td><td class=\"names\">%s</td></tr>\n",
			iff(s.Chosen, ` class="tightest"`), s.Limit, iff(s.Chosen, " <em>chosen</em>"), iff(s.Edge, " <em>the cliff is below</em>"),
			number(s.Minute), number(s.Clients), s.Named())
	}
	p.endTable()
	p.put("</section>\n")
}

// traffic writes the requests over time, by client, and as a curve.
func (p *page) traffic(r *Report, tried []Result) {
	t := r.Traffic
	p.section("time", "Requests over time")
	p.put("<p>%s to %s. A bar is %s.</p>\n", stamp(t.From), stamp(t.To), t.Bar)
	if len(tried) > 0 {
		p.put("<fieldset class=\"choice\"><legend>Shown as denied</legend>\n")
		for i, one := range tried {
			p.put("<label><input type=\"radio\" name=\"shown\" value=\"%d\"%s> %s</label>\n", i, iff(i == 0, " checked"), one.Limit)
		}
		p.put("</fieldset>")
	}
	p.put("\n%s\n<ul class=\"key\"><li class=\"all\">requests</li>%s</ul>\n</section>\n",
		timeChart(t, tried), iff(len(tried) > 0, `<li class="denied">of these, denied</li>`))
	p.clients(r)
	p.section("curves", "Rate and burst")
	p.put("<p>The least burst that would let everything of so many clients through, at each rate.")
	if r.Choice != nil {
		p.put(" The dot is the tightest limit that keeps to %s.", r.Choice.Target)
	}
	p.put("</p>\n%s\n<ul class=\"key\"><li class=\"curve-4\">all clients</li><li class=\"curve-3\">99.9%%</li><li class=\"curve-2\">99%%</li><li class=\"curve-1\">90%%</li><li class=\"curve-0\">50%%</li></ul>\n</section>\n",
		curveChart(t.Curve, r.Choice))
}

// clients writes what clients send at the most, as a drawing that the script
// makes and as a table.
func (p *page) clients(r *Report) {
	p.section("clients", "Clients by what they send")
	p.put("<p>How many clients ever sent more than so much in one second, minute or hour of the clock. Drag the line, or move it by the arrow keys.</p>\n")
	p.put("<div class=\"drag\" data-clients=\"%d\">\n<fieldset class=\"choice\"><legend>In one</legend>\n", r.Log.Clients)
	for i, s := range r.spread {
		p.put("<label><input type=\"radio\" name=\"per\" value=\"%d\"%s> %s</label>\n", i, iff(s.Per == "minute", " checked"), s.Per)
	}
	spread, err := json.Marshal(r.spread)
	if err != nil {
		panic(err) // numbers and words
	}
	p.put("</fieldset>\n<div id=\"spread\"></div>\n<p class=\"above\" id=\"above\"></p>\n</div>\n<script type=\"application/json\" id=\"spread-data\">%s</script>\n", markup(spread))
	p.table("clients", "So many clients never sent more in one", "of the clock", "50%", "90%", "99%", "99.9%", "all")
	for _, d := range r.Traffic.Clocks {
		p.put("<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			d.Per, number(d.P50), number(d.P90), number(d.P99), number(d.P999), number(d.Max))
	}
	p.endTable()
	p.put("</section>\n")
}

// results writes what each limit would have done.
func (p *page) results(all []Result) {
	p.section("results", "What a limit would have done")
	p.table("results", "", "limit", "requests denied", "clients denied", "first", "longest lock-out")
	for i := range all {
		r := &all[i]
		p.put("<tr><th scope=\"row\">%s</th><td>%s <small>%s</small></td><td>%s <small>%s</small></td><td>%s</td><td>%s</td></tr>\n",
			r.Limit, number(r.Denied), share(r.Denied, r.Requests), number(r.ClientsDenied), share(r.ClientsDenied, r.Clients), r.When(), r.LongestLockout)
	}
	p.endTable()
	for i := range all {
		if len(all[i].Top) > 0 {
			p.denied(&all[i])
		}
	}
	p.put("\n</section>\n")
}

// denied writes which clients a limit denied most.
func (p *page) denied(r *Result) {
	p.put("<details><summary>%s: to whom most was denied</summary>\n", r.Limit)
	p.put("<div class=\"wide\" role=\"group\" tabindex=\"0\" aria-label=\"To whom %s denied most\"><table>", r.Limit)
	p.columns([]markup{"client", "denied", "of", "longest lock-out"})
	for _, d := range r.Top {
		of := ""
		if d.Requests > 0 {
			of = number(d.Requests)
		}
		p.put("<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td></tr>\n", d.Key, number(d.Denied), of, d.Lockout)
	}
	p.endTable()
	p.put("<ul class=\"who\">")
	for _, d := range r.Top {
		if d.Evidence != nil {
			p.put("<li><small>%s</small></li>", d.Evidence)
		}
	}
	p.put("</ul></details>")
}

// candidates writes among what a limit was chosen.
func (p *page) candidates(c *Choice) {
	p.section("candidates", "How it was chosen")
	p.table("candidates", "To deny at most "+c.Target+", for each rate the least burst", "rate", "burst", "most a minute", "full again after")
	for _, k := range c.Candidates {
		tightest := k.text() == c.Tightest
		slow := !tightest && !k.Fits
		p.put("<tr%s%s><th scope=\"row\">%s%s%s</th><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			iff(tightest, ` class="tightest"`), iff(slow, ` class="slow"`),
			k.Rate, iff(tightest, " <em>the tightest</em>"), iff(slow, " <em>too slow</em>"),
			number(k.Burst), number(k.Minute), k.Recovers)
	}
	p.endTable()
	p.put("</section>\n")
}

// heaviest writes the clients that sent most.
func (p *page) heaviest(t *Traffic) {
	p.section("heaviest", "The heaviest clients")
	p.table("heaviest", "", "client", "requests", "share", "in one second", "minute", "hour")
	for _, h := range t.Heaviest {
		p.put("<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			h.Key, number(h.Requests), share(h.Requests, t.Requests), number(h.Second), number(h.Minute), number(h.Hour))
	}
	p.endTable()
	if len(t.Outliers) > 0 {
		p.put("<p>Far from the rest:")
		for _, h := range t.Outliers {
			p.put(" %s (%s in a minute)", h.Key, number(h.Minute))
		}
		p.put(". If that is abuse, leave it out with --ignore-key.</p>")
	}
	p.put("\n</section>\n")
}
