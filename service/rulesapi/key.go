package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/rules"
)

// A Customer names a key as people write it: by text or by attributes.
type Customer struct {
	// Key is one of three texts. If the rule's key has one attribute, it is the value of that
	// attribute. It may be what stint explain prints behind "key", such as ip="192.0.2.7". If the
	// key is a hash, or of several attributes, it may be the key as in stores and lists of
	// overrides.
	Key string
	// Attributes are NAME=VALUE each, instead of Key.
	Attributes []string
	// Exact says that Key was made by the rule: x-api-key=a is no mistake for a, then.
	Exact bool
}

// HeldKey is [Editor.Key] for an existing override. If its rule is gone, the text must be the key
// as in lists of overrides.
func (d *Editor) HeldKey(ctx context.Context, rule string, c Customer) (string, error) {
	key, err := d.Key(ctx, rule, c)
	if errors.Is(err, policy.ErrNoRule) && len(c.Attributes) == 0 {
		return c.Key, nil
	}
	return key, err
}

// Key returns the key of a customer under a rule in force.
func (d *Editor) Key(ctx context.Context, rule string, c Customer) (string, error) {
	f, err := d.Rules(ctx)
	if err != nil {
		return "", err
	}
	return d.keyIn(f, rule, c)
}

// keyIn returns the key of a customer under a rule.
func (d *Editor) keyIn(f *rules.File, rule string, c Customer) (string, error) {
	names, err := f.Rules.KeyAttributes(rule)
	if err != nil {
		return "", &InputError{"rule", unknownRule(rule, f.Rules.Names())}
	}
	if len(c.Attributes) > 0 {
		if c.Key != "" {
			return "", &InputError{"attribute", errors.New("a key and attributes: give one of both")}
		}
		return d.fromAttributes(f.Rules, rule, names, c.Attributes)
	}
	switch attrs, ok := explainedKey(c.Key); {
	case len(names) == 0:
		if c.Key != "" {
			return "", &InputError{"key", fmt.Errorf("all requests share one key under rule %s: write ''", rule)}
		}
		return "", nil
	case ok && sameNames(attrs, names):
		return d.keyOf(f.Rules, rule, attrs)
	case c.Key == "":
		return "", &InputError{"key", fmt.Errorf("empty: the key of rule %s is made of %s", rule, strings.Join(names, ", "))}
	case isHash(c.Key):
		return c.Key, nil
	case len(names) == 1 && !c.Exact && namedBy(c.Key, names[0]):
		return "", &InputError{"key", fmt.Errorf("%q: write only what is behind the =; a value that begins so is given as --attribute %s=VALUE", wording.Shorten(c.Key), names[0])}
	case len(names) == 1:
		return d.keyOf(f.Rules, rule, policy.Map{names[0]: c.Key})
	case policy.Tag(c.Key) != c.Key:
		return c.Key, nil
	}
	return "", &InputError{"key", fmt.Errorf("the key of rule %s is made of %s: give each as --attribute NAME=VALUE, or write %s",
		rule, strings.Join(names, ", "), strings.Join(names, `="…" `)+`="…"`)}
}

func (d *Editor) fromAttributes(r *policy.Rules, rule string, names, texts []string) (string, error) {
	attrs := make(policy.Map)
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return "", &InputError{"attribute", fmt.Errorf("%q: write NAME=VALUE", text)}
		}
		attrs[policy.AttributeName(name)] = value
	}
	if !sameNames(attrs, names) {
		return "", &InputError{"attribute", fmt.Errorf("the key of rule %s is made of %s: give these, and no others", rule, orNothing(names))}
	}
	return d.keyOf(r, rule, attrs)
}

func (d *Editor) keyOf(r *policy.Rules, rule string, attrs policy.Map) (string, error) {
	key, err := r.KeyOf(rule, attrs, d.secret)
	if err != nil {
		return "", &InputError{"key", err}
	}
	return key, nil
}

// namedBy reports whether a key is written as NAME=VALUE with the name of its attribute, such as
// header.x-api-key=a or x-api-key=a.
func namedBy(key, attribute string) bool {
	name, _, ok := strings.Cut(key, "=")
	_, last, _ := strings.Cut(attribute, ".")
	return ok && name != "" && (policy.AttributeName(name) == attribute || strings.EqualFold(name, last))
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

func sameNames(attrs policy.Map, names []string) bool {
	for _, n := range names {
		if _, ok := attrs[n]; !ok {
			return false
		}
	}
	return len(attrs) == len(names)
}

// explainedKey parses a key as stint explain prints it: name="value" and so on.
func explainedKey(text string) (policy.Map, bool) {
	attrs := make(policy.Map)
	for rest := text; rest != ""; rest = strings.TrimLeft(rest, " ") {
		name, behind, ok := strings.Cut(rest, "=")
		if !ok || name == "" || strings.ContainsAny(name, `" `) {
			return nil, false
		}
		quoted, err := strconv.QuotedPrefix(behind)
		if err != nil {
			return nil, false
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, false
		}
		attrs[name], rest = value, behind[len(quoted):]
	}
	return attrs, len(attrs) > 0
}

// isHash reports whether a key is a hash, as package policy writes it.
func isHash(key string) bool {
	const length = 32 // 24 bytes as base64
	rest, ok := strings.CutPrefix(key, "~")
	return ok && len(rest) == length && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
