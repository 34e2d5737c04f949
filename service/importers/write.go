package importers

import (
	"crypto/sha256"
	"encoding/base32"
	"iter"
	"regexp"
	"strconv"
	"strings"
)

// A File is a rules file.
type File struct {
	Attributes     []string // the attributes that only callers know
	FoldCase       bool     // paths are compared without case
	TrustedProxies []string
	ClientIPHeader string
	Rules          []Rule
	// Made, if set, yields the rules instead of Rules, each when it is written. It is read
	// once, and its rules have their final names.
	Made iter.Seq[*Rule]
}

// A Rule is a rule of the file.
type Rule struct {
	Name, Description string
	Match, Unless     [][]Cond // lists of conditions, one of which must hold; without Match, all requests match
	Block, Unlimited  bool
	Key               []string
	IPv6Prefix        int    // 0 leaves it out
	OnMissing         string // this field and the next two are left out if empty
	OnStoreFailure    string
	Cost              int
	Limits            []string
	// Overrides are tried in order. The first whose conditions a request meets says
	// whether the limits apply to the request.
	Overrides []Override
	Shadow    bool
	Quota     bool // shadow: quota
}

// An Override holds some requests of a rule to its limits, or lifts the limits for them.
type Override struct {
	When   []Cond
	Lifted bool
}

// None is the YAML of a file without rules.
const None = "rules: []\n"

// YAML names the rules, and returns the file.
func (f *File) YAML() []byte {
	if f.Made != nil {
		for r := range f.Made {
			f.Rules = append(f.Rules, *r)
		}
		f.Made = nil
	}
	root, text := f.Tree()
	for range root.Fields[len(root.Fields)-1].Value.Each {
	}
	return text()
}

// Text returns a list of conditions as rules write it.
func Text(all []Cond) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].Text()
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

// Text returns the condition as rules write it.
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

var escaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`)

// Escape returns a pattern that matches exactly the text.
func Escape(text string) string { return escaper.Replace(text) }

// nameable matches valid names of rules.
var nameable = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

const mostName = 64

// Name returns the text as the name of a rule, or if it is no valid name that of [NameOf].
func Name(text string) string {
	if len(text) <= mostName && nameable.MatchString(text) {
		return text
	}
	return NameOf(text)
}

// letters encodes bytes in lower case.
var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NameOf returns the name of a rule: the beginning of text, for people, and 128 bits of a hash
// of text and identity. A name does not depend on other rules or on their order, so that
// what clients have used stays with the rule when the configuration is imported again.
func NameOf(text string, identity ...string) string {
	whole := make([]byte, 0, 1<<10)
	for i := -1; i < len(identity); i++ {
		part := text
		if i >= 0 {
			part = identity[i]
		}
		whole = append(append(strconv.AppendInt(whole, int64(len(part)), 10), ':'), part...)
	}
	sum := sha256.Sum256(whole)
	hash := letters.EncodeToString(sum[:16])
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

// name gives the rules their names. If rules have the same name in the configuration, their
// conditions and keys become part of the hash in the name.
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
			for _, o := range r.Overrides {
				identity = append(identity, "override "+Text(o.When))
			}
			r.Name = NameOf(r.Name, identity...)
		}
	}
}
