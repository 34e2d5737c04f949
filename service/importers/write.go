package importers

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
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

// YAML returns the file, whose rules it gives their names.
func (f *File) YAML() []byte {
	if len(f.Rules) == 0 {
		return []byte(None)
	}
	f.name()
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

// plain reports whether YAML takes text for itself, but for the words that it does not.
func plain(text string) bool {
	for i := range len(text) {
		c := text[i]
		first := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || c == '/'
		if !first && (i == 0 || (c < '0' || c > '9') && c != '.' && c != '*' && c != '-') {
			return false
		}
	}
	return text != ""
}

// quoted returns text as YAML, without quotes where it needs none. Quoted text is
// JSON's.
func quoted(text string) string {
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if plain(text) {
			return text
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text can always be written
	return strings.TrimSuffix(b.String(), "\n")
}

var escaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`)

// Escape returns text as a pattern for exactly that.
func Escape(text string) string { return escaper.Replace(text) }

// nameable is what the names of rules are made of.
var nameable = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

const mostName = 64

// Name returns the name of a rule that is called so where it comes from.
func Name(text string) string {
	if len(text) <= mostName && nameable.MatchString(text) {
		return text
	}
	return NameOf(text)
}

// NameOf returns the name of a rule: the beginning of a text, to be read, and 128 bits of a
// hash of what identifies the rule where it comes from, or of the text. So the name of one
// does not depend on others, nor on their order: what clients have used stays with it.
func NameOf(text string, identity ...string) string {
	h := sha256.New()
	for _, part := range append([]string{text}, identity...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:16]))
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		case r == '=':
			return '_'
		}
		return '-'
	}, text)
	clean = strings.Trim(clean[:min(len(clean), mostName-1-len(hash))], "-.")
	return strings.TrimPrefix(clean+"-"+hash, "-")
}

// name gives the rules their names. Those that are called the same where they come from
// are told apart by what they are for.
func (f *File) name() {
	same := map[string]int{}
	for i := range f.Rules {
		f.Rules[i].Name = Name(f.Rules[i].Name)
		same[f.Rules[i].Name]++
	}
	for i := range f.Rules {
		if r := &f.Rules[i]; same[r.Name] > 1 {
			identity := append([]string{strconv.FormatBool(r.Block)}, r.Key...)
			for _, one := range r.Match {
				identity = append(identity, Text(one))
			}
			for _, one := range r.Unless {
				identity = append(identity, "unless "+Text(one))
			}
			r.Name = NameOf(r.Name, identity...)
		}
	}
}
