package rules

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// Settings are what a rules file says beside its rules. The zero value is a
// file that says nothing.
type Settings struct {
	// TrustedProxies are the addresses of the proxies whose word about the
	// client's address is taken. The default value is none.
	TrustedProxies []netip.Prefix
	// ClientIPHeader is the header that they speak through, in canonical form.
	// The default value is "", for X-Forwarded-For.
	ClientIPHeader string
	// Store says where what keys have used is kept, as a URL, which may hold a
	// password. The default value is "", for the memory of the process.
	Store string
	// OnDemand says that customers' own limits are asked of the database as
	// customers come, and not all held in memory. The default value is false.
	OnDemand bool
}

// settingNames are the fields of Settings in a file; schema.go has the same.
var settingNames = []string{"trusted_proxies", "client_ip_header", "store", "overrides"}

// maxErrors is how many errors in settings are reported at once.
const maxErrors = 100

const addressHint = "write an address or a range, such as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32"

// settings reads the fields beside the rules. What is there twice, or unknown,
// is rulesfile.Decode's to tell.
func settings(root *rulesfile.Node) (s Settings, warnings []rulesfile.Warning, errs rulesfile.Errors) {
	if root == nil || root.Kind != rulesfile.MapKind {
		return s, nil, nil
	}
	fail := func(n *rulesfile.Node, path, reason, hint string) {
		if len(errs) == maxErrors {
			return
		}
		errs = append(errs, &rulesfile.Error{Line: n.Line, Column: n.Column, Path: path, Reason: reason, Hint: hint})
	}
	var header *rulesfile.Node
	for _, f := range root.Fields {
		n := f.Value
		switch f.Name {
		case "trusted_proxies":
			s.TrustedProxies = proxies(n, f.Name, fail)
			for _, p := range s.TrustedProxies {
				if p.Bits() == 0 {
					warnings = append(warnings, rulesfile.Warning{Line: n.Line, Column: n.Column,
						Reason: fmt.Sprintf("%s: %v is every address, so any client says which it has", f.Name, p),
						Hint:   "name the proxies alone"})
				}
			}
		case "client_ip_header":
			header = n
			if n.Kind != rulesfile.String || !isToken(n.Value) {
				fail(n, f.Name, "want the name of a header", "write X-Forwarded-For (the default), Forwarded, or one that holds one address, such as X-Real-IP")
				continue
			}
			s.ClientIPHeader = http.CanonicalHeaderKey(n.Value)
		case "store":
			if n.Kind != rulesfile.String || n.Value == "" {
				fail(n, f.Name, "want a URL as text", "such as redis://127.0.0.1:6379; drop the field to keep counts in memory")
				continue
			}
			s.Store = n.Value
		case "overrides":
			if n.Kind != rulesfile.String || n.Value != "on_demand" && n.Value != "in_memory" {
				fail(n, f.Name, "want in_memory or on_demand", "in_memory, the default, holds all customers' own limits of the database; on_demand asks for each as it comes")
				continue
			}
			s.OnDemand = n.Value == "on_demand"
		}
	}
	if header != nil && len(s.TrustedProxies) == 0 && len(errs) == 0 {
		warnings = append(warnings, rulesfile.Warning{Line: header.Line, Column: header.Column,
			Reason: "client_ip_header has no effect while no proxy is trusted",
			Hint:   "name the proxies in trusted_proxies, or by --trusted-proxy"})
	}
	return s, warnings, errs
}

// proxies reads one address or range, or a list of them.
func proxies(n *rulesfile.Node, path string, fail func(n *rulesfile.Node, path, reason, hint string)) (all []netip.Prefix) {
	items := []*rulesfile.Node{n}
	if n.Kind == rulesfile.List {
		items = n.Items
	}
	for i, item := range items {
		at := path
		if n.Kind == rulesfile.List {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		if item.Kind != rulesfile.String {
			fail(item, at, fmt.Sprintf("want text, not %v", item.Kind), addressHint)
			continue
		}
		p, err := ParseProxy(item.Value)
		if err != nil {
			reason, hint, _ := strings.Cut(err.Error(), "; ")
			fail(item, at, reason, hint)
			continue
		}
		all = append(all, p)
	}
	return all
}

// ParseProxy reads an address or a range of trusted proxies: the flags take the
// same as the file. The error says what would be right.
func ParseProxy(text string) (netip.Prefix, error) {
	p, reason, hint := match.ParseNet(text)
	if reason != "" {
		return p, fmt.Errorf("%.80q: %s; %s", text, reason, hint)
	}
	return p, nil
}

// isToken reports whether s may be the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && (c >= 0x80 || !strings.ContainsRune("!#$%&'*+-.^_`|~", c))
	})
}
