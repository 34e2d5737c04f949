package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/rulesapi"
)

type inspectCmd struct {
	serversFlags `embed:""`
	requestFlags `embed:""`
	jsonFlag     `embed:""`
}

// Help is what "stint inspect --help" says below the summary.
func (inspectCmd) Help() string {
	return `Shows for every rule that may apply to a client: the usage and what remains, when
a request passes again, and why it is denied; its override or block, and who set
it; and how often it was denied lately. Attributes that you do not give are left
open: a rule with a path is shown with "where path is /login". Nothing is charged.

key_hash is the key as it is in logs. With --json, each of several servers is a line.

` + serversHelp + `
For example:

    stint inspect --ip 192.0.2.7 --server http://127.0.0.1:9090
    stint inspect --header X-Api-Key=partner-1 --path /api/orders
    stint inspect --attribute jwt.sub=anna --json`
}

// attributes returns the attributes of the client that the flags give.
func (c *requestFlags) attributes() (policy.Map, error) {
	attrs := make(policy.Map)
	for kind, value := range map[request.Kind]string{request.IP: c.IP, request.Method: c.Method, request.Host: c.Host, request.Path: c.Path} {
		if value != "" {
			attrs[kind.String()] = value
		}
	}
	for _, text := range c.Header {
		name, value, err := headerOf(text)
		if err != nil {
			return nil, err
		}
		attribute := policy.AttributeName("header." + name)
		if _, twice := attrs[attribute]; twice {
			return nil, usage("--header", "%s twice: a request that says it twice is refused with 400 where rules look at it", name)
		}
		attrs[attribute] = value
	}
	for _, text := range c.Attribute {
		name, value, err := pairOf("--attribute", text)
		if err != nil {
			return nil, err
		}
		attrs[policy.AttributeName(name)] = value
	}
	if len(attrs) == 0 {
		return nil, usage("--ip", "missing: say who the client is, such as --ip 192.0.2.7 or --header X-Api-Key=partner-1")
	}
	if ip, given := attrs["ip"]; given {
		if _, err := netip.ParseAddr(ip); err != nil {
			return nil, usage("--ip", "%q is no address", ip)
		}
	}
	return attrs, nil
}

// Run asks and prints the answer.
func (c *inspectCmd) Run(e *env) error {
	attrs, err := c.attributes()
	if err != nil {
		return err
	}
	if err := c.open(); err != nil {
		return err
	}
	defer c.close()
	answers, missing, failed := ask(e.ctx, &c.serversFlags, func(ctx context.Context, k *rulesapi.Client) (json.RawMessage, error) {
		var raw json.RawMessage
		err := k.Call(ctx, http.MethodPost, "/v1/inspect", nil, map[string]any{"attributes": attrs, "sent": c.Sent}, &raw)
		return raw, err
	})
	for i, a := range answers {
		if err := c.print(e, i, a); err != nil {
			return err
		}
	}
	for _, u := range missing {
		if err := printed(e.out, c.JSON, u, func(w io.Writer) error { return wrap(w, "\n"+u.text(), "    ") }); err != nil {
			return err
		}
	}
	return failed
}

// print writes the answer of server i; of several servers, each answer names its server.
func (c *inspectCmd) print(e *env, i int, a answer[json.RawMessage]) error {
	switch {
	case c.JSON && c.alone():
		return printJSON(e.out, a.said)
	case c.JSON:
		return printJSON(e.out, struct {
			Server string          `json:"server"`
			Story  json.RawMessage `json:"story"`
		}{a.at.String(), a.said})
	}
	var story operate.Story
	if err := json.Unmarshal(a.said, &story); err != nil {
		return fmt.Errorf("%s: the answer: %w", a.at, err)
	}
	text := storyText(&story)
	if !c.alone() {
		text = "at " + a.at.String() + "\n" + text
	}
	if i > 0 {
		text = "\n" + text
	}
	return wrap(e.out, text, "      ")
}

// storyText writes a story for people.
func storyText(s *operate.Story) string {
	var b strings.Builder
	b.WriteString(s.Verdict + "\n")
	for i := range s.Rules {
		ruleText(&b, &s.Rules[i], s.At)
	}
	for _, l := range s.LeftOut {
		fmt.Fprintf(&b, "not known %s: it goes by %s\n", l.Rule, strings.Join(l.Missing, ", "))
	}
	if s.More {
		b.WriteString("and more rules: say more of the client\n")
	}
	v := s.Version
	fmt.Fprintf(&b, "rules %s", v.Name)
	if v.Revision > 0 {
		fmt.Fprintf(&b, ", revision %d, change %d", v.Revision, v.Change)
	}
	fmt.Fprintf(&b, ", %.12s\n", v.Hash)
	if v.Problem != "" {
		fmt.Fprintf(&b, "    %s\n", v.Problem)
	}
	return b.String()
}

func ruleText(b *strings.Builder, r *operate.Rule, at time.Time) {
	mark := "passes"
	switch {
	case r.Denied && r.Shadow:
		mark = "would be denied (shadow)"
	case r.Denied && len(r.Where) > 0:
		mark = "may be DENIED"
	case r.Denied:
		mark = "DENIED"
	case r.Unknown:
		mark = "not known"
	case r.ReserveOnly:
		mark = "refused unless reserved"
	}
	why, ends := r.Why, "no rule after it is tried"
	if len(r.Where) > 0 {
		why, ends = why+", where "+strings.Join(r.Where, " and "), "where it matches, no rule after it is tried"
	}
	fmt.Fprintf(b, "%s %s: %s\n", mark, r.Rule, why)
	if r.Key != "" {
		fmt.Fprintf(b, "    key %s, in logs %s\n", shown(r.Key), r.KeyHash)
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		by := ""
		if l.Variant != "" {
			by = " (" + l.Variant + ")"
		}
		fmt.Fprintf(b, "    %s%s: %s\n", l.Limit, by, l.Words)
	}
	if o := r.Override; o != nil {
		b.WriteString("    override")
		if o.Author != "" {
			fmt.Fprintf(b, " by %s", shown(o.Author))
		}
		if !o.At.IsZero() {
			fmt.Fprintf(b, ", %s", clock(o.At))
		}
		if !o.Expires.IsZero() {
			fmt.Fprintf(b, ", until %s", clock(o.Expires))
		}
		if o.Reason != "" {
			fmt.Fprintf(b, ": %s", inLine(o.Reason))
		}
		b.WriteString(but(o.Note) + "\n")
	}
	if d := r.Denials; d != nil {
		did := "denied"
		if r.Shadow {
			did = "would have been denied"
		}
		fmt.Fprintf(b, "    %s %d times in the last %d minutes, since %s, last %v ago\n", did, d.Count, len(d.Minutes), clock(d.Since), at.Sub(d.Last).Round(time.Second))
	}
	if r.StoreError != "" {
		fmt.Fprintf(b, "    the store: %s\n", r.StoreError)
	}
	if r.Ends {
		fmt.Fprintf(b, "    %s\n", ends)
	}
}
