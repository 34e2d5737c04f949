package main

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/rules"
)

type explainCmd struct {
	Config       string `short:"c" env:"STINT_CONFIG" instead:"rules" placeholder:"FILE" help:"The rules file."`
	readFlags    `embed:""`
	secretFlag   `embed:""`
	requestFlags `embed:""`
	Query        []string `sep:"none" placeholder:"NAME=VALUE" help:"A query parameter, not encoded; may be repeated."`
	Cookie       []string `sep:"none" placeholder:"NAME=VALUE" help:"A cookie; may be repeated."`
	Peer         string   `placeholder:"ADDRESS" help:"Instead of --ip: the address that the connection comes from. If it is a trusted proxy, headers give the client's address."`
	TrustedProxy []string `sep:"none" placeholder:"RANGE" help:"With --peer: a trusted proxy; may be repeated. Overrides trusted_proxies of the file."`
	jsonFlag     `embed:""`
}

// Help is what "stint explain --help" says below the summary.
func (explainCmd) Help() string {
	return `Explains for every rule whether it applies to a request, why or why not, and with
which limits and key. With --peer, it explains how the client's address is
determined. Nothing is charged. Attributes of the request are shown in clear.

For example:

    stint explain -c stint.yaml --method POST --path /login --ip 192.0.2.7
    stint explain -c stint.yaml --path /api/a --header X-Api-Key=partner-1
    stint explain -c stint.yaml --path / --peer 10.0.0.1 \
        --header 'X-Forwarded-For: 203.0.113.9, 10.0.0.2'
    stint explain -c stint.yaml --path /v1/chat --attribute jwt.sub=anna --json
    stint explain --rules postgres://stint@127.0.0.1/stint --path /api/a \
        --header X-Api-Key=partner-1`
}

// Run prints the explanation.
func (c *explainCmd) Run(e *env) error {
	asked, err := c.request()
	if err != nil {
		return err
	}
	file, err := c.file(e)
	if err != nil {
		return err
	}
	for _, text := range c.Attribute {
		name, _, _ := strings.Cut(text, "=")
		if unknown := file.Rules.File().Unknown(policy.AttributeName(name)); unknown != nil {
			return &usageError{"--attribute", unknown}
		}
	}
	address, err := c.address(asked, file.Settings)
	if err != nil {
		return err
	}
	var ambiguous httplimit.Ambiguous
	if err := ambiguous.Check(file.Rules, asked.Request()); err != nil {
		return err
	}
	x, err := file.Rules.Explain(asked)
	if err == nil && c.Config == "" {
		x, err = c.withOwn(e, file, asked)
	}
	if err != nil {
		return err
	}
	refused := ambiguous.CheckPath(file.Rules, c.Path)
	if c.JSON {
		return printJSON(e.out, explained(x, address, refused))
	}
	if refused != nil {
		text := "refused with 400 by stint proxy, /auth and middleware: " + refused.Error() + ". For other callers:\n"
		if err := wrap(e.out, text, "        "); err != nil {
			return err
		}
	}
	if address != "" {
		text := "address\n"
		for line := range strings.Lines(address) {
			text += "      " + line
		}
		if err := wrap(e.out, text, "        "); err != nil {
			return err
		}
	}
	return wrap(e.out, x.String(), "      ")
}

// file reads the rules that --config or --rules names.
func (c *explainCmd) file(e *env) (*rules.File, error) {
	switch {
	case c.Config != "" && c.Rules != "":
		return nil, usage("--rules", "and --config: give one of them")
	case c.Config != "":
		return rules.Read(c.Config)
	case c.Rules == "":
		return nil, usage("--config", "missing: write the rules file, such as -c stint.yaml, or --rules and where the rules are")
	}
	name, document, err := c.document(e)
	if err != nil {
		return nil, err
	}
	return rules.Decode(name, document)
}

// described is the request that flags describe.
type described struct {
	request.HTTP
	ip   string
	sent int64
}

// BodyLength returns how many bytes the body has.
func (d *described) BodyLength() int64 { return d.sent }

// request makes the request that the flags describe.
func (c *explainCmd) request() (*described, error) {
	d, more := &described{ip: c.IP, sent: c.Sent}, make(policy.Map)
	d.Method, d.Host, d.Header = c.Method, c.Host, make(http.Header)
	d.Client = func() (addr netip.Addr, text string, ok bool) { return addr, d.ip, d.ip != "" }
	d.Pointer = func(pointer string) (string, bool) { return more.Attribute(request.Body.String() + pointer) }
	d.More = more.Attribute
	path, query, _ := strings.Cut(c.Path, "?")
	if d.RawQuery = query; path != "" {
		d.URL = &url.URL{Opaque: path}
	}
	if c.IP != "" {
		if _, err := netip.ParseAddr(c.IP); err != nil {
			return nil, usage("--ip", "%q is no address: write one without port, such as 192.0.2.7", c.IP)
		}
	}
	for _, text := range c.Header {
		name, value, err := headerOf(text)
		if err != nil {
			return nil, err
		}
		d.Header.Add(name, value)
	}
	d.Host = cmp.Or(d.Host, d.Header.Get("Host"))
	for _, flag := range []struct {
		name   string
		values []string
		add    func(name, value string)
	}{
		{"--query", c.Query, func(name, value string) {
			d.RawQuery = strings.TrimPrefix(d.RawQuery+"&"+url.QueryEscape(name)+"="+url.QueryEscape(value), "&")
		}},
		{"--cookie", c.Cookie, func(name, value string) {
			(&http.Request{Header: d.Header}).AddCookie(&http.Cookie{Name: name, Value: value})
		}},
		{"--attribute", c.Attribute, func(name, value string) { more[policy.AttributeName(name)] = value }},
	} {
		for _, text := range flag.values {
			name, value, err := pairOf(flag.name, text)
			if err != nil {
				return nil, err
			}
			flag.add(name, value)
		}
	}
	for name := range more {
		if a := request.Of(name); a.OfHTTP() && a.Kind != request.Body {
			word, _, _ := strings.Cut(name, ".")
			return nil, usage("--attribute", "%q: write --%s", name, word)
		}
	}
	return d, nil
}

// address finds the client's address as a server behind proxies does, and says in words how.
func (c *explainCmd) address(d *described, s rules.Settings) (string, error) {
	if c.Peer == "" {
		if len(c.TrustedProxy) > 0 {
			return "", usage("--trusted-proxy", "goes with --peer")
		}
		return "", nil
	}
	if c.IP != "" {
		return "", usage("--peer", "finds the client's address itself: leave --ip out")
	}
	_, portErr := netip.ParseAddrPort(c.Peer)
	if _, err := netip.ParseAddr(c.Peer); err != nil && portErr != nil {
		return "", usage("--peer", "%q is no address: write one such as 10.0.0.1 or [2001:db8::1]:443", c.Peer)
	}
	client := httplimit.ClientIP{Trusted: s.TrustedProxies, Header: s.ClientIPHeader}
	if len(c.TrustedProxy) > 0 {
		client.Trusted = nil
	}
	for _, text := range c.TrustedProxy {
		p, err := rules.ParseProxy(text)
		if err != nil {
			return "", &usageError{"--trusted-proxy", err}
		}
		client.Trusted = append(client.Trusted, p)
	}
	r := &http.Request{RemoteAddr: c.Peer, Header: d.Header}
	if addr, ok := client.Addr(r); ok {
		d.ip = addr.String()
	}
	return client.Explain(r), nil
}

// An explanation is what --json prints.
type explanation struct {
	// Refused is the reason why stint proxy, /auth and middleware answer 400.
	Refused string          `json:"refused,omitzero"`
	Path    string          `json:"path,omitzero"`
	Address []string        `json:"address,omitzero"`
	Rules   []explainedRule `json:"rules"`
}

type explainedRule struct {
	Rule    string         `json:"rule"`
	Applies bool           `json:"applies"`
	Why     string         `json:"why"`
	Limits  []string       `json:"limits,omitzero"`
	Action  string         `json:"action,omitzero"`
	Key     []explainedKey `json:"key,omitzero"`
	Cost    int64          `json:"cost,omitzero"`
	Price   string         `json:"price_by,omitzero"`
	Times   int64          `json:"price,omitzero"`
	Settled string         `json:"settled_by,omitzero"`
	Count   string         `json:"counts_status,omitzero"`
	Shadow  bool           `json:"shadow,omitzero"`
	Ends    bool           `json:"ends,omitzero"`
}

type explainedKey struct {
	Attribute string `json:"attribute"`
	Value     string `json:"value"`
	Missing   bool   `json:"missing,omitzero"`
}

func explained(x policy.Explanation, address string, refused error) explanation {
	e := explanation{Path: x.Path, Rules: []explainedRule{}}
	if refused != nil {
		e.Refused = refused.Error()
	}
	for line := range strings.Lines(address) {
		e.Address = append(e.Address, strings.TrimSpace(line))
	}
	for _, r := range x.Rules {
		one := explainedRule{Rule: r.Rule, Applies: r.Applies, Why: r.Why, Cost: r.Cost, Shadow: r.Shadow, Ends: r.Ends}
		if r.Price != nil {
			one.Price, one.Times = r.Price.By.Name, r.Times
		}
		if r.Response != nil {
			one.Settled = r.Response.Truth()
			if r.Response.Count != nil {
				one.Count = r.Response.Count.String()
			}
		}
		for _, l := range r.Limits {
			if l.Action != "" {
				one.Action = l.Action
			} else {
				one.Limits = append(one.Limits, l.Text)
			}
		}
		for _, k := range r.Key {
			one.Key = append(one.Key, explainedKey{k.Attribute, k.Value, k.Missing})
		}
		e.Rules = append(e.Rules, one)
	}
	return e
}
