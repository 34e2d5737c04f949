package policy

import (
	"errors"
	"fmt"

	"github.com/stint-dev/stint/internal/match"
)

// ErrNoRule is for the name of a rule that there is not.
var ErrNoRule = errors.New("no such rule")

// KeyAttributes returns the attributes that the key of a rule is made of, in
// order. They are none where all requests share one key. The error is
// [ErrNoRule].
func (r *Rules) KeyAttributes(name string) ([]string, error) {
	one, err := r.rule(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(one.key))
	for i, a := range one.key {
		names[i] = a.Name
	}
	return names, nil
}

// KeyOf returns the key that a rule makes of attributes, as stores and overrides
// have it. secret is [Options.Secret]: keys that are hashed depend on it. A key
// of which an attribute is missing is refused, since all clients that do not send it
// share it.
func (r *Rules) KeyOf(name string, attrs Attributes, secret []byte) (string, error) {
	one, err := r.rule(name)
	if err != nil {
		return "", err
	}
	if one.hashKey && len(secret) == 0 {
		return "", fmt.Errorf("rule %q has hash_key: its keys cannot be made without the secret", name)
	}
	q := match.Request{Attrs: attrs}
	if err := r.ready(&q); err != nil {
		return "", err
	}
	for _, a := range one.key {
		if _, ok := one.keyValue(&q, a); !ok {
			return "", fmt.Errorf("rule %q: attribute %s of its key is missing, or is none that can be read", name, a.Name)
		}
	}
	p := Policy{opts: Options{Secret: secret}}
	key, _, _ := p.key(one, &q, nil)
	return key, nil
}

func (r *Rules) rule(name string) (*rule, error) {
	for _, one := range r.rules {
		if one.name == name {
			return one, nil
		}
	}
	return nil, fmt.Errorf("rule %q: %w", name, ErrNoRule)
}

// AttributesOf returns the attributes that a rule makes a key of: [Rules.KeyOf] of
// them is the key. It is false where the key does not say: it holds a hash, or one
// of them is missing.
func (r *Rules) AttributesOf(name, key string) (Map, bool) {
	one, err := r.rule(name)
	if err != nil || one.hashKey || len(one.key) == 0 {
		return nil, err == nil && !one.hashKey && key == ""
	}
	values, rest := []string{key}, ""
	if len(one.key) > 1 {
		values = values[:0]
		for rest = key; rest != "" && len(values) < len(one.key); {
			value, behind, ok := unlink(rest)
			if !ok {
				return nil, false
			}
			values, rest = append(values, value), behind
		}
	}
	if rest != "" || len(values) != len(one.key) {
		return nil, false
	}
	attrs := make(Map, len(values))
	for i, a := range one.key {
		if values[i] == "" || values[i][0] == hashMark {
			return nil, false
		}
		attrs[a.Name] = values[i]
	}
	return attrs, true
}
