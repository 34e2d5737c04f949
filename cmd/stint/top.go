package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/rulesapi"
)

type topCmd struct {
	serversFlags `embed:""`
	N            int           `short:"n" default:"20" placeholder:"N" help:"At most N of each (${default})."`
	Every        time.Duration `default:"2s" help:"How often to redraw the page (${default})."`
	Once         bool          `help:"Print the page once. This is the default if the output is no terminal."`
	By           string        `enum:"part,used" default:"part" help:"The order of keys: nearest to a limit, or used most (${enum}; ${default})."`
	JSON         bool          `name:"json" xor:"how" help:"Write JSON, once."`
	CSV          bool          `name:"csv" xor:"how" help:"Write what keys have used as CSV, once."`
}

// Help is what "stint top --help" says below the summary.
func (topCmd) Help() string {
	return `Rules by what they deny and decide a second, the keys denied most in the last ten
minutes, what keys have used that are near a limit or whose use responses say, the
stores and the nodes. A server remembers 1,024 keys of each kind, about 0.7 MB, whatever
it is asked. Counts of several servers are added up.

` + serversHelp + `
For example:

    stint top --server http://127.0.0.1:9090
    stint top --server https://10.0.0.1:9090 --server https://10.0.0.2:9090 --token-file token
    stint top --by used --csv -n 1000 >used.csv`
}

// Run draws the page until it is interrupted.
func (c *topCmd) Run(e *env) error {
	if c.N < 1 || c.N > 1000 {
		return usage("-n", "%d: from 1 to 1000", c.N)
	}
	if c.Every < 100*time.Millisecond {
		return usage("--every", "%v: at least 100ms", c.Every)
	}
	if err := c.open(); err != nil {
		return err
	}
	defer c.close()
	once := c.Once || !isTerminal(e.out)
	for {
		page, from, failed := c.page(e.ctx)
		switch {
		case page == nil:
			return failed
		case c.JSON:
			return errors.Join(printJSON(e.out, page), failed)
		case c.CSV:
			return errors.Join(usedCSV(e.out, page.Nearest), failed)
		}
		text := printable(topText(page, from))
		if once {
			_, err := fmt.Fprint(e.out, text)
			return errors.Join(err, failed)
		}
		if _, err := fmt.Fprint(e.out, "\x1b[H\x1b[2J"+text); err != nil { // home, and clear
			return err
		}
		select {
		case <-e.ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
	}
}

// A topPage is what several servers say together.
type topPage struct {
	*operate.Page
	Unknown []unknown `json:"unknown,omitempty"`
}

// page asks all servers. It is nil, with the reasons, if none answers; otherwise the
// error counts those that do not.
func (c *topCmd) page(ctx context.Context) (page *topPage, from []string, failed error) {
	query := url.Values{"n": {strconv.Itoa(c.N)}}
	by := ""
	if c.By == operate.ByUsed {
		by = c.By
		query.Set("by", by)
	}
	answers, missing, failed := ask(ctx, &c.serversFlags, func(ctx context.Context, k *rulesapi.Client) (*operate.Page, error) {
		p := new(operate.Page)
		return p, k.Call(ctx, http.MethodGet, "/v1/top", query, nil, p)
	})
	if len(answers) == 0 {
		return nil, nil, failed
	}
	var pages []*operate.Page
	for _, a := range answers {
		pages, from = append(pages, a.said), append(from, a.at.String())
	}
	return &topPage{operate.Merge(pages, c.N, by), missing}, from, failed
}

// topText writes the page for a terminal.
func topText(p *topPage, servers []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  rules %s %.12s\n", strings.Join(servers, " "), p.At.Format("15:04:05Z"), p.Version.Name, p.Version.Hash)
	if p.Version.Problem != "" {
		fmt.Fprintf(&b, "    %s\n", inLine(p.Version.Problem))
	}
	for _, u := range p.Unknown {
		b.WriteString(u.text())
	}
	fmt.Fprintf(&b, "\n%-32s %12s %12s %12s %12s\n", "RULE", "DENIED/S", "LET PASS/S", "DENIED", "LET PASS")
	for _, r := range p.Rules {
		fmt.Fprintf(&b, "%-32s %12.1f %12.1f %12d %12d", column(r.Rule, 32), r.DeniedPerSecond, r.AllowedPerSecond, r.Denied, r.Allowed)
		if r.ShadowDenied > 0 {
			fmt.Fprintf(&b, "  in shadow: %d would be denied", r.ShadowDenied)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\n%-32s %-32s %12s %12s\n", "DENIED MOST, LAST "+strconv.Itoa(p.Minutes)+" MIN", "KEY", "TIMES", "AGO")
	for _, k := range p.Denied {
		fmt.Fprintf(&b, "%-32s %-32s %12d %12v", column(k.Rule, 32), column(keyShown(k.Key), 32), k.Count-k.Over, p.At.Sub(k.Last).Round(time.Second))
		if k.Shadow {
			b.WriteString("  in shadow")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\n%-32s %-32s %12s %16s  %s\n", "USED", "KEY", "ABOUT NOW", "AT LAST REQUEST", "OF LIMIT")
	for _, k := range p.Nearest {
		fmt.Fprintf(&b, "%-32s %-32s %11.0f%% %16d  %s\n", column(k.Rule, 32), column(keyShown(k.Key), 32), 100*k.Part, k.Used, k.Limit)
	}
	b.WriteString("\n")
	for _, s := range p.Stores {
		fmt.Fprintf(&b, "store %s", s.Store)
		if s.Calls > 0 {
			fmt.Fprintf(&b, ": %d calls, %.2f ms, 99%% within %g ms, %d failed", s.Calls, s.MeanMS, s.P99MS, s.Failures)
		}
		if s.MaxKeys > 0 {
			fmt.Fprintf(&b, ": %d of %d keys, %.1f MB", s.Keys, s.MaxKeys, float64(s.Bytes)/1e6)
		}
		b.WriteString("\n")
	}
	for _, n := range p.Nodes {
		fmt.Fprintf(&b, "node %s: revision %d, change %d, seen %v ago %s\n", shown(n.Node), n.Version, n.Change, p.At.Sub(n.Seen).Round(time.Second), inLine(n.Error))
	}
	return b.String()
}

// keyShown writes a key for a terminal. That of a rule that counts all together is empty.
func keyShown(key string) string {
	if key == "" {
		return "(one key for all)"
	}
	return shown(key)
}

// usedCSV writes what keys have used.
func usedCSV(out io.Writer, all []operate.KeyPart) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"rule", "key", "limit", "used", "of", "at"}) // Error says so
	for _, k := range all {
		_ = w.Write([]string{k.Rule, inLine(k.Key), k.Limit, strconv.FormatInt(k.Used, 10), strconv.FormatInt(k.Of, 10), k.At.Format(time.RFC3339)})
	}
	w.Flush()
	return w.Error()
}

// column cuts text to a column.
func column(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

type blockedCmd struct {
	serversFlags `embed:""`
	mostFlag     `embed:""`
	jsonFlag     `embed:""`
}

// Help is what "stint block list --help" says below the summary.
func (blockedCmd) Help() string {
	return `First those that limits deny or have banned, and those whose last request can never pass, since a
rule blocks it or it costs more than a limit holds, as far as the server remembers
(1,024 keys); then those that operators blocked.

` + serversHelp + `
For example:

    stint block list --server http://127.0.0.1:9090
    stint block list --server http://127.0.0.1:9090 --json >blocked.json`
}

// Run lists, page by page.
func (c *blockedCmd) Run(e *env) error {
	if c.Last < 0 {
		return usage("--limit", "%d: at least 1", c.Last)
	}
	if err := c.open(); err != nil {
		return err
	}
	defer c.close()
	answers, missing, failed := ask(e.ctx, &c.serversFlags, limited)
	if len(answers) == 0 {
		return failed
	}
	out, left := &listing{w: e.out, json: c.JSON}, c.Last
	for one, err := range c.listed(e.ctx, answers) {
		if err != nil {
			return err
		}
		if left--; left < 0 && c.Last > 0 {
			break
		}
		if err := out.one(one, blockedText(&one)); err != nil {
			return err
		}
	}
	for _, u := range missing {
		if err := out.one(u, u.text()); err != nil {
			return err
		}
	}
	return errors.Join(out.end(), failed)
}

// listed yields the keys that limits deny, and then the keys that operators blocked. It
// yields a key that several servers name once.
func (c *blockedCmd) listed(ctx context.Context, answers []answer[blockedPage]) iter.Seq2[operate.Blocked, error] {
	return func(yield func(operate.Blocked, error) bool) {
		var all [][]operate.Blocked
		for _, a := range answers {
			all = append(all, a.said.limited)
		}
		for _, one := range operate.MergeBlocked(all) {
			if !yield(one, nil) {
				return
			}
		}
		listed := make(map[string]bool)
		for _, a := range answers {
			for page, err := a.said.Blocked, error(nil); ; page, err = a.said.more(ctx, a.at) {
				if err != nil {
					yield(operate.Blocked{}, err)
					return
				}
				for _, one := range page {
					if len(answers) > 1 {
						text := blockedText(&one)
						if listed[text] {
							continue
						}
						listed[text] = true
					}
					if !yield(one, nil) {
						return
					}
				}
				if a.said.Next == "" {
					break
				}
			}
		}
	}
}

// A blockedPage is a page of a server's list of denied keys.
type blockedPage struct {
	Blocked []operate.Blocked
	Next    string
	limited []operate.Blocked // keys that limits deny, of all pages so far
}

// more reads the next page.
func (p *blockedPage) more(ctx context.Context, k *rulesapi.Client) ([]operate.Blocked, error) {
	query := url.Values{"n": {"1000"}}
	if p.Next != "" {
		query.Set("after", p.Next)
	}
	*p = blockedPage{limited: p.limited}
	err := k.Call(ctx, http.MethodGet, "/v1/blocked", query, nil, p)
	return p.Blocked, err
}

// limited reads pages until the keys that limits deny end. They are p.limited; p.Blocked is
// the rest of the last page.
func limited(ctx context.Context, k *rulesapi.Client) (p blockedPage, err error) {
	for {
		page, err := p.more(ctx, k)
		n := slices.IndexFunc(page, func(b operate.Blocked) bool { return b.Why == "block" })
		if n < 0 {
			n = len(page)
		}
		p.limited, p.Blocked = append(p.limited, page[:n]...), page[n:]
		if err != nil || n < len(page) || p.Next == "" {
			return p, err
		}
	}
}

// blockedText is a line for a denied key.
func blockedText(b *operate.Blocked) string {
	why := b.Why
	switch why {
	case "never":
		why = "can never pass"
	case "ban":
		why = "banned"
	}
	text := fmt.Sprintf("%s %s: %s", b.Rule, shown(b.Key), why)
	if b.Until != nil {
		text += " until " + clock(*b.Until)
	}
	if b.Author != "" {
		text += " by " + shown(b.Author)
	}
	if b.Reason != "" {
		text += " (" + inLine(b.Reason) + ")"
	}
	if b.Count > 0 {
		text += fmt.Sprintf(", denied %s lately", count(int(b.Count), "time"))
	}
	return text + but(b.Note) + "\n"
}
