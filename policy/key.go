package policy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/wording"
)

// A key of one attribute is its value, or empty when it is missing. An empty value counts as
// missing, or an empty header would be a way around on_missing. A value longer than plainTag
// bytes, or beginning like a hash, is replaced by its hash. A key of several attributes is a
// chain of netstrings, length:value, with a hyphen for each that is missing. The first value,
// the tag, is the key that its attribute alone would make. If the chain is longer than
// plainKey bytes, it is the tag and then the hash of the whole. So no two lists of values
// have the same key.
const (
	plainKey = 256 // bytes
	plainTag = 192 // bytes, which leaves room for a hash
	hashMark = '~'
)

// processSecret takes the place of Options.Secret where that is not given: it seals IDs of
// reservations and hides keys in logs.
var processSecret = sync.OnceValue(func() []byte {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return b
})

// key returns the key of a request under a rule, and which attribute of it is the first that is
// missing, counted from 1; 0 for none. It overwrites room.
func (p *Policy) key(r *rule, q *match.Request, room *[]byte) (key string, missing int) {
	if len(r.Key) == 0 {
		return "", 0
	}
	tag, ok := r.keyValue(q, r.Key[0])
	if ok && (r.HashKey || len(tag) > plainTag || tag[0] == hashMark) {
		tag = p.hashed(tag)
	}
	if !ok {
		missing = 1
	}
	if len(r.Key) == 1 {
		return tag, missing // the tag is empty where the value is missing
	}
	buf := link((*room)[:0], tag, ok)
	from := len(buf)
	for i, a := range r.Key[1:] {
		v, ok := r.keyValue(q, a)
		if buf = link(buf, v, ok); !ok && missing == 0 {
			missing = i + 2
		}
	}
	if r.HashKey || len(buf) > plainKey {
		buf = append(buf[:from], p.hashed(string(buf))...)
	}
	*room = buf
	return string(buf), missing
}

// link appends a value to the chain, or a hyphen if it is missing.
func link(buf []byte, value string, there bool) []byte {
	if !there {
		return append(buf, '-')
	}
	buf = strconv.AppendInt(buf, int64(len(value)), 10)
	buf = append(buf, ':')
	return append(buf, value...)
}

// Tag returns the tag of a key that a policy made: the key that its first attribute alone
// would make. A rule's field tag says which attribute is first. Keys with the same tag belong
// in one slot of a cluster, so that the rules which made them can be decided in one call. The
// tag of any text that does not read as a key of several attributes is the text.
func Tag(key string) string {
	tag, rest, ok := unlink(key)
	for chain := ok && rest != ""; chain; {
		switch rest[0] {
		case '-':
			rest = rest[1:]
		case hashMark:
			return tag
		default:
			_, rest, chain = unlink(rest)
		}
		if rest == "" && chain {
			return tag
		}
	}
	return key
}

func unlink(chain string) (value, rest string, ok bool) {
	length, rest, ok := strings.Cut(chain, ":")
	n, err := strconv.ParseUint(length, 10, 16)
	if !ok || err != nil || n == 0 || n > uint64(len(rest)) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}

// keyValue returns the part of a key that an attribute makes. Of an address that is its
// prefix: the owner chooses the rest.
func (r *rule) keyValue(q *match.Request, a request.Attribute) (string, bool) {
	if a.Kind == request.IP {
		addr, ok := q.Addr()
		if !ok {
			return "", false
		}
		bits := r.IPv6Prefix
		if addr.Is4() {
			bits = r.IPv4Prefix
		}
		if bits < addr.BitLen() {
			prefix, _ := addr.Prefix(bits)
			return prefix.Addr().String(), true
		}
		return q.AddrText(), true
	}
	v, ok := q.Value(a)
	return v, ok && v != ""
}

// hashed returns the form of a key that does not show it.
func (p *Policy) hashed(key string) string {
	var sum []byte
	if len(p.opts.Secret) > 0 {
		sum = mac(p.opts.Secret, "key", key)
	} else {
		plain := sha256.Sum256([]byte(key))
		sum = plain[:]
	}
	return string(hashMark) + base64.RawURLEncoding.EncodeToString(sum[:24])
}

func mac(secret []byte, purpose, text string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(purpose + "\x00" + text))
	return h.Sum(nil)
}

func (p *Policy) secret() []byte {
	if len(p.opts.Secret) > 0 {
		return p.opts.Secret
	}
	return processSecret()
}

// KeyHash returns 16 hexadecimal digits for the key of r.Rules[i], to tell keys apart in logs
// without showing them. They are the same for the same rule and key as long as the secret is
// the same. They are "" where there is no key.
func (r *Result) KeyHash(i int) string {
	h := r.matchOf(i)
	if h == nil || h.plan.id < 0 {
		return ""
	}
	return r.policy.KeyHash(h.rule.Name, h.key)
}

// KeyHash returns what [Result.KeyHash] does for a key that a rule made.
func (p *Policy) KeyHash(rule, key string) string {
	return hex.EncodeToString(mac(p.secret(), "log", rule+"\x00"+key)[:8])
}

// Key returns the key of r.Rules[i] as the store has it. It may hold what
// clients sent, secrets included.
func (r *Result) Key(i int) string {
	if h := r.matchOf(i); h != nil {
		return h.key
	}
	return ""
}

func (r *Result) matchOf(i int) *ruleMatch {
	if i < 0 || i >= len(r.Rules) || r.policy == nil {
		return nil
	}
	return &r.matches[r.Rules[i].match]
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// ErrNoRule says that no rule has the name that was given.
var ErrNoRule = errors.New("no such rule")

// KeyAttributes returns the attributes that the key of a rule is made of, in order. There are
// none if all requests share one key. The error is [ErrNoRule].
func (r *Rules) KeyAttributes(name string) ([]string, error) {
	one, err := r.rule(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(one.Key))
	for i, a := range one.Key {
		names[i] = a.Name
	}
	return names, nil
}

// Overridable says whether an [Override] of a key has an effect under a rule: limited reports
// whether the rule has limits or tiers of its own, and not an action alone, shadow whether it is in
// shadow, where an override denies nobody either. The error is [ErrNoRule].
func (r *Rules) Overridable(name string) (limited, shadow bool, err error) {
	one, err := r.rule(name)
	if err != nil {
		return false, false, err
	}
	return one.limited(), one.Shadow, nil
}

// KeyOf returns the key that a rule makes of attributes, as stores and overrides have it.
// secret is [Options.Secret]: hashed keys depend on it. If an attribute of the key is
// missing, KeyOf returns an error, because all clients that do not send it share that key.
func (r *Rules) KeyOf(name string, attrs Attributes, secret []byte) (string, error) {
	one, err := r.rule(name)
	if err != nil {
		return "", err
	}
	if one.HashKey && len(secret) == 0 {
		return "", fmt.Errorf("rule %q has hash_key: its keys cannot be made without the secret", name)
	}
	q := match.NewRequest(attrs)
	if err := r.ready(q); err != nil {
		return "", err
	}
	for _, a := range one.Key {
		if _, ok := one.keyValue(q, a); !ok {
			if v, _ := attrs.Attribute(a.Name); a.Kind == request.IP && v != "" {
				return "", fmt.Errorf("rule %q counts by ip, and %q is no address; for a network, write a rule that matches it", name, wording.Shorten(v))
			}
			return "", fmt.Errorf("rule %q: attribute %s of its key is missing, or is none that can be read", name, a.Name)
		}
	}
	p := Policy{opts: Options{Secret: secret}}
	key, _ := p.key(one, q, new([]byte))
	return key, nil
}

func (r *Rules) rule(name string) (*rule, error) {
	if one := r.byName[name]; one != nil {
		return one, nil
	}
	return nil, fmt.Errorf("rule %q: %w", name, ErrNoRule)
}

// AttributesOf returns the attributes of which a rule makes the key: it reverses
// [Rules.KeyOf]. It returns false where the key does not say them: it holds a hash, or one of
// them is missing.
func (r *Rules) AttributesOf(name, key string) (Map, bool) {
	one, err := r.rule(name)
	if err != nil || one.HashKey || len(one.Key) == 0 {
		return nil, err == nil && !one.HashKey && key == ""
	}
	values, rest := []string{key}, ""
	if len(one.Key) > 1 {
		values = values[:0]
		for rest = key; rest != "" && len(values) < len(one.Key); {
			value, behind, ok := unlink(rest)
			if !ok {
				return nil, false
			}
			values, rest = append(values, value), behind
		}
	}
	if rest != "" || len(values) != len(one.Key) {
		return nil, false
	}
	attrs := make(Map, len(values))
	for i, a := range one.Key {
		if values[i] == "" || values[i][0] == hashMark {
			return nil, false
		}
		attrs[a.Name] = values[i]
	}
	return attrs, true
}
