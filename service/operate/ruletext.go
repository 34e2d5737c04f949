package operate

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// ruleWords says in sentences what a rule means.
func ruleWords(r *rulesfile.Rule) []string {
	all := []string{which(r)}
	if r.Own == nil || r.Own.Action == "" || r.Tiers != nil {
		all = append(all, counted(r))
	}
	if r.Own != nil {
		all = append(all, planWords("", r.Own)...)
	}
	if t := r.Tiers; t != nil {
		for _, name := range t.Names {
			all = append(all, planWords(fmt.Sprintf("Where %s is %s: ", t.By.Name, name), t.Plans[name])...)
		}
		if t.Default != nil {
			all = append(all, planWords("For any other "+t.By.Name+": ", t.Default)...)
		}
	}
	for i := range r.Overrides {
		all = append(all, planWords("Where "+r.Overrides[i].When.String()+": ", r.Overrides[i].Plan)...)
	}
	return append(all, besides(r)...)
}

func which(r *rulesfile.Rule) string {
	text := "Holds every request"
	if r.Match != nil {
		text = "Holds requests where " + either(r.Match)
	}
	if len(r.Unless) > 0 {
		text += ", but not those where " + either(r.Unless)
	}
	return text + "."
}

func either(any []match.Conjunction) string {
	texts := make([]string, len(any))
	for i, c := range any {
		texts[i] = c.String()
	}
	return strings.Join(texts, "; or where ")
}

func counted(r *rulesfile.Rule) string {
	names := make([]string, len(r.Key))
	addresses := false
	for i, a := range r.Key {
		names[i] = a.Name
		addresses = addresses || a.Kind == request.IP
	}
	var text string
	switch len(names) {
	case 0:
		return "All of them share one count."
	case 1:
		text = "Each " + names[0] + " is counted apart"
	default:
		text = "Each combination of " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + " is counted apart"
	}
	if addresses && (r.IPv4Prefix < 32 || r.IPv6Prefix < 128) {
		text += fmt.Sprintf(", addresses by /%d (IPv4) and /%d (IPv6)", r.IPv4Prefix, r.IPv6Prefix)
	}
	switch r.OnMissing {
	case "deny":
		return text + "; without that, a request is denied."
	case "skip":
		return text + "; without that, a request is not held."
	}
	return text + "; those without share one count."
}

// planWords says what a plan means; each sentence begins with lead.
func planWords(lead string, p *rulesfile.Plan) (all []string) {
	switch p.Action {
	case "block":
		return []string{lead + "All are denied."}
	case "unlimited":
		return []string{lead + "All pass."}
	}
	for _, l := range p.Limits {
		all = append(all, lead+limitWords(l))
	}
	return all
}

// limitWords says what a limit means.
func limitWords(l stint.Limit) string {
	if l.InFlight() {
		return fmt.Sprintf("%v: %d at one moment; each takes its place until it ends.", l, l.Count())
	}
	if unit, zone := l.Calendar(); unit != "" {
		return fmt.Sprintf("%v: %d in each %s of %s, beginning anew with the next.", l, l.Count(), strings.Replace(unit, "from", "from day", 1), zone)
	}
	if l.FromFirst() {
		return fmt.Sprintf("%v: %d in each window of %s, which begins with a key's first request.", l, l.Count(), trimmed(l.Period()))
	}
	return fmt.Sprintf("%v: %s", l, told(algorithms[l.Algorithm()].means, l, 0))
}

// trimmed writes a duration without zero units at its end: 12m for 12m0s, and days from two
// of them on.
func trimmed(d time.Duration) string {
	if days := d / (24 * time.Hour); days >= 2 {
		return strings.TrimSuffix(fmt.Sprintf("%d days %v", days, trimmed(d%(24*time.Hour))), " 0s")
	}
	text := short(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// besides returns sentences about the rule's settings other than limits.
func besides(r *rulesfile.Rule) (all []string) {
	if c := r.Cost; c.Fixed > 1 {
		all = append(all, fmt.Sprintf("A request costs %d.", c.Fixed))
	} else if c.Fixed == 0 && len(c.By) > 0 {
		all = append(all, costWords(&c))
	}
	if price := r.Cost.Price; price != nil {
		all = append(all, fmt.Sprintf("All this times the price by %s: %v.", price.By.Name, price))
	}
	all = append(all, byResponse(r.Response)...)
	if r.Wait > 0 {
		all = append(all, fmt.Sprintf("A request waits up to %v for a place.", trimmed(r.Wait)))
	}
	if r.Finish > 0 {
		all = append(all, fmt.Sprintf("A request whose client leaves goes on in stint proxy for up to %v, and holds its place.", trimmed(r.Finish)))
	}
	if r.Shadow {
		all = append(all, "In shadow: it counts, and denies nothing.")
	}
	if r.Final {
		all = append(all, "No rule after it is tried.")
	}
	if r.HashKey {
		all = append(all, "Keys are kept as hashes alone.")
	}
	if r.Mode != "" && r.Mode != "strict" {
		all = append(all, "Processes hold it together by "+r.Mode+".")
	}
	switch r.OnStoreFailure {
	case "open":
		all = append(all, "While the store does not answer, all pass.")
	case "closed":
		all = append(all, "While the store does not answer, all are denied.")
	}
	return all
}

// costWords says how attributes determine the cost of a request.
func costWords(c *rulesfile.Cost) string {
	names := make([]string, len(c.By))
	for i, a := range c.By {
		names[i] = a.Name
	}
	text := "A request costs what " + names[0] + " says"
	if len(names) > 1 {
		text = "A request costs the greatest of " + strings.Join(names, ", ")
	}
	if c.Times.Name != "" {
		text += ", times " + c.Times.Name
	}
	if c.Sent > 0 {
		text += fmt.Sprintf(", and 1 for each %d bytes of its body", c.Sent)
	}
	return fmt.Sprintf("%s, from %d to %d; %d without it.", text, c.Min, c.Max, c.Default)
}

// byResponse says how a rule uses the response.
func byResponse(r *rulesfile.Response) (all []string) {
	if r == nil {
		return nil
	}
	if truth := r.Truth(); truth != "" {
		text := "When the response has ended, that becomes what it says: " + truth
		if r.Missing >= 0 {
			text += fmt.Sprintf(", or %d without it", r.Missing)
		} else if r.Estimate {
			text += ", or what its length and events say without it, if that is more"
		}
		if r.Cut {
			text += ". It is cut where there is no room for that"
		}
		all = append(all, text+".")
	}
	if r.Count != nil {
		all = append(all, fmt.Sprintf("Responses of status %s count; others give back what was charged.", r.Count))
	}
	return all
}

// mostText bounds the lines of a rule that are shown.
const mostText = 400

// ruleText returns the lines of a rule in a document, without the lines that introduce the next
// rule.
func ruleText(document []byte, line int, next int) string {
	lines := bytes.Split(document, []byte("\n"))
	if line < 1 || line > len(lines) {
		return ""
	}
	end := len(lines)
	if next > line {
		end = min(end, next-1)
	}
	first := lines[line-1]
	indent := len(first) - len(bytes.TrimLeft(first, " "))
	last := line
	for at := line + 1; at <= min(end, line+mostText-1); at++ {
		text := bytes.TrimSpace(lines[at-1])
		here := len(lines[at-1]) - len(bytes.TrimLeft(lines[at-1], " "))
		switch {
		case len(text) == 0 || text[0] == '#' && here <= indent:
		case here <= indent:
			end = 0 // index behind the rules
		default:
			last = at
		}
	}
	out := make([]string, 0, last-line+1)
	for _, l := range lines[line-1 : last] {
		out = append(out, strings.TrimPrefix(string(l), strings.Repeat(" ", indent)))
	}
	return strings.Join(out, "\n")
}
