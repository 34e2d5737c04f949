package importers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A File is a rules file.
type File struct {
	Attributes     []string // those that only callers know
	FoldCase       bool     // upper and lower case of paths are one
	TrustedProxies []string
	ClientIPHeader string
	Rules          []Rule
}

// A Rule is one of a file.
type Rule struct {
	Name, Description string
	Match, Unless     [][]Cond // any of them; no Match is every request
	Block, Unlimited  bool
	Key               []string
	IPv6Prefix        int    // 0 leaves it out
	OnMissing         string // as the two below, "" leaves it out
	OnStoreFailure    string
	Cost              int
	Limits            []string
	// Overrides are requests in order: those of the first that fits are held to the
	// limits, or lifted from them.
	Overrides []Override
	Shadow    bool
	Quota     bool // shadow: quota
}

// An Override is requests of a rule.
type Override struct {
	When   []Cond
	Lifted bool
}

// None is the file without rules.
const None = "rules: []\n"

// YAML returns the file.
func (f *File) YAML() []byte {
	if len(f.Rules) == 0 {
		return []byte(None)
	}
	var b bytes.Buffer
	if len(f.Attributes) > 0 {
		fmt.Fprintf(&b, "attributes: [%s]\n", list(f.Attributes))
	}
	if f.FoldCase {
		b.WriteString("ignore_path_case: true\n")
	}
	if len(f.TrustedProxies) > 0 {
		fmt.Fprintf(&b, "trusted_proxies: [%s]\nclient_ip_header: %s\n", list(f.TrustedProxies), quoted(f.ClientIPHeader))
	}
	b.WriteString("rules:\n")
	for i := range f.Rules {
		f.Rules[i].write(&b)
	}
	return b.Bytes()
}

func (r *Rule) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "  - name: %s\n", quoted(r.Name))
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "    %s: %s\n", name, value)
		}
	}
	if r.Description != "" {
		field("description", quoted(r.Description))
	}
	conditions(b, "match", r.Match)
	conditions(b, "unless", r.Unless)
	switch {
	case r.Block:
		field("block", "true")
		return
	case r.Unlimited:
		field("unlimited", "true")
		return
	}
	field("key", "["+list(r.Key)+"]")
	if r.IPv6Prefix > 0 && slices.Contains(r.Key, "ip") {
		field("ipv6_prefix", strconv.Itoa(r.IPv6Prefix))
	}
	field("on_missing", r.OnMissing)
	field("on_store_failure", r.OnStoreFailure)
	if r.Cost > 0 {
		field("cost", strconv.Itoa(r.Cost))
	}
	limits := "[" + list(r.Limits) + "]"
	field("limits", limits)
	for i, o := range r.Overrides {
		if i == 0 {
			b.WriteString("    overrides:\n")
		}
		then := "limits: " + limits
		if o.Lifted {
			then = "unlimited: true"
		}
		fmt.Fprintf(b, "      - {when: %s, %s}\n", Text(o.When), then)
	}
	switch {
	case r.Quota:
		field("shadow", "quota")
	case r.Shadow:
		field("shadow", "true")
	}
}

// conditions writes any of which must hold.
func conditions(b *bytes.Buffer, name string, all [][]Cond) {
	var texts []string
	for _, one := range all {
		if text := Text(one); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	switch len(texts) {
	case 0:
	case 1:
		fmt.Fprintf(b, "    %s: %s\n", name, texts[0])
	default:
		fmt.Fprintf(b, "    %s:\n      - %s\n", name, strings.Join(texts, "\n      - "))
	}
}

// Text returns conditions as they stand in a rule.
func Text(all []Cond) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].Text()
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

// Text returns the condition as it stands in a rule.
func (c *Cond) Text() string {
	value := strconv.FormatBool(c.Set)
	switch len(c.Values) {
	case 0:
	case 1:
		value = quoted(c.Values[0])
	default:
		value = "[" + list(c.Values) + "]"
	}
	return quoted(c.Attribute) + ": " + value
}

func list(all []string) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = quoted(s)
	}
	return strings.Join(texts, ", ")
}

// plain is text that YAML takes for itself, but for the words that it does not.
var plain = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./*-]*$`)

// quoted returns text as YAML, without quotes where it needs none. Quoted text is
// JSON's.
func quoted(text string) string {
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if plain.MatchString(text) {
			return text
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text can always be written
	return strings.TrimSuffix(b.String(), "\n")
}

// Escape returns text as a pattern for exactly that.
func Escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`).Replace(text)
}

// Names are those of rules.
type Names map[string]bool

// New returns a name like a text that no other rule has.
func (n Names) New(text string) string {
	const most = 64
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		case r == '=':
			return '_'
		}
		return '-'
	}, text)
	if first := clean[:min(1, len(clean))]; first == "" || first == "-" || first == "." {
		clean = "_" + clean[len(first):]
	}
	name := clean[:min(len(clean), most)]
	for i := 2; n[name]; i++ {
		suffix := "-" + strconv.Itoa(i)
		name = clean[:min(len(clean), most-len(suffix))] + suffix
	}
	n[name] = true
	return name
}
