package rehearse

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
)

// Text writes a report for people.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s to %s\n", wording.Count(r.Requests, "request"), moment(r.From), moment(r.To))
	fmt.Fprintf(&b, "state: %s", r.State)
	if r.WarmUpRequests > 0 {
		fmt.Fprintf(&b, "; the first %s are not counted (%s)", r.WarmUp, wording.Count(r.WarmUpRequests, "request"))
	}
	b.WriteString("\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\tin force\tnew rules\t\n")
	fmt.Fprintf(table, "requests denied\t%s\t%s\t\n", wording.Grouped(r.Denied.Before), wording.Grouped(r.Denied.After))
	fmt.Fprintf(table, "keys denied\t%s\t%s\t\n", wording.Grouped(r.KeysDenied.Before), wording.Grouped(r.KeysDenied.After))
	_ = table.Flush() // to memory
	fmt.Fprintf(&b, "\nnewly denied: %s, %s of those that rules match, and %s that were not denied before\n", wording.Count(r.NewlyDenied, "request"), Percent(r.NewlyDeniedShare), wording.Count(r.KeysNewlyDenied, "key"))
	if r.Unread > 0 {
		fmt.Fprintf(&b, "  with %s in lines that could not be read, each as one newly denied\n", wording.Count(r.Unread, "request"))
	}
	fmt.Fprintf(&b, "newly passed: %s, and %s that are no longer denied\n", wording.Count(r.NewlyPassed, "request"), wording.Count(r.KeysNewlyPassed, "key"))
	fmt.Fprintf(&b, "denied when they came: %s\n", wording.Count(r.RecordedDenied, "request"))
	r.rules(&b)
	if r.NewlyDenied+r.NewlyPassed > 0 {
		r.timeline(&b)
	}
	keys(&b, "newly denied most", r.Denials, func(k *Key) int64 { return k.NewlyDenied })
	keys(&b, "newly passed most", r.Passes, func(k *Key) int64 { return k.NewlyPassed })
	if len(r.Unsure)+len(r.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, text := range r.Unsure {
		fmt.Fprintf(&b, "NOT TO BE TRUSTED: %s\n", text)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// rules writes the rules that deny anything.
func (r *Report) rules(b *strings.Builder) {
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\nrule\tdenied\tthen\tnewly denied\tnewly passed\t\n")
	quiet := 0
	for _, one := range r.Rules {
		if one.Denied == (Compare{}) && one.ShadowDenied == (Compare{}) {
			quiet++
			continue
		}
		if one.Denied != (Compare{}) {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t\n", one.Rule, wording.Grouped(one.Denied.Before), wording.Grouped(one.Denied.After), wording.Grouped(one.NewlyDenied), wording.Grouped(one.NewlyPassed))
		}
		if one.ShadowDenied != (Compare{}) {
			fmt.Fprintf(table, "%s (shadow)\t%s\t%s\t\t\t\n", one.Rule, wording.Grouped(one.ShadowDenied.Before), wording.Grouped(one.ShadowDenied.After))
		}
	}
	if quiet < len(r.Rules) {
		_ = table.Flush() // to memory
	}
	if quiet > 0 {
		fmt.Fprintf(b, "\n%s denied nothing\n", wording.Count(int64(quiet), "rule"))
	}
}

// timeline draws the changes over time.
func (r *Report) timeline(b *strings.Builder) {
	t := &r.OverTime
	most := int64(1)
	for i := range t.Requests {
		most = max(most, t.NewlyDenied[i], t.NewlyPassed[i])
	}
	fmt.Fprintf(b, "\n")
	for _, row := range []struct {
		name   string
		counts []int64
	}{{"newly denied", t.NewlyDenied}, {"newly passed", t.NewlyPassed}} {
		fmt.Fprintf(b, "%s  %s\n", row.name, strings.TrimRight(wording.Bars(row.counts, most), " "))
	}
	fmt.Fprintf(b, "              a column is %s; █ is %s\n", t.Column, wording.Grouped(most))
}

// keys writes a table of keys.
func keys(b *strings.Builder, title string, all []Key, by func(*Key) int64) {
	if len(all) == 0 {
		return
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\n%s\trule\tdenied\tthen\tfirst\tkey\n", title)
	for i := range all {
		k := &all[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", wording.Grouped(by(k)), k.Rule, wording.Grouped(k.Denied.Before), wording.Grouped(k.Denied.After), k.First.UTC().Format("15:04:05"), k.shown())
	}
	_ = table.Flush() // to memory
}

// shown returns the key for a terminal.
func (k *Key) shown() string {
	const most = 48
	key := k.Key
	if key == "" {
		return k.KeyHash
	}
	if utf8.RuneCountInString(key) > most {
		key = string([]rune(key)[:most]) + "…"
	}
	if quoted := strconv.Quote(key); quoted[1:len(quoted)-1] != key {
		return quoted
	}
	return key
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Percent writes a share of 1.
func Percent(share float64) string {
	return strconv.FormatFloat(share*100, 'g', 3, 64) + "%"
}
