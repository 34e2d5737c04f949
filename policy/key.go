package policy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
)

// A key of one attribute is its value, or nothing when it is missing; an empty
// value counts as missing, or an empty header would be a way around on_missing.
// A key of several is a chain of netstrings, length:value, and a hyphen for
// what is missing. What is longer than plainKey bytes, or begins like a hash,
// is hashed. So no two lists of values have the same key.
const (
	plainKey = 256 // bytes
	hashMark = '~'
)

// processSecret seals tokens and hides keys in logs where no secret is given.
var processSecret = sync.OnceValue(func() []byte {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return b
})

// key returns the key of a request under a rule, using buf for room.
func (p *Policy) key(r *rule, q *request, buf []byte) (key string, rest []byte, missing bool) {
	if len(r.key) == 1 {
		v, ok := r.keyValue(q, r.key[0])
		if !ok {
			return "", buf, true
		}
		if r.hashKey || len(v) > plainKey || v[0] == hashMark {
			return p.hashed(v), buf, false
		}
		return v, buf, false
	}
	if len(r.key) == 0 {
		return "", buf, false
	}
	buf = buf[:0]
	for _, a := range r.key {
		v, ok := r.keyValue(q, a)
		if !ok {
			missing = true
			buf = append(buf, '-')
			continue
		}
		buf = strconv.AppendInt(buf, int64(len(v)), 10)
		buf = append(buf, ':')
		buf = append(buf, v...)
	}
	key = string(buf)
	if r.hashKey || len(key) > plainKey {
		key = p.hashed(key)
	}
	return key, buf, missing
}

// keyValue returns what an attribute gives to a key; of an address, the part
// that its owner does not choose.
func (r *rule) keyValue(q *request, a attribute) (string, bool) {
	if a.field == ipField {
		addr, ok := q.addr()
		if !ok {
			return "", false
		}
		bits := r.ipv6
		if addr.Is4() {
			bits = r.ipv4
		}
		if bits < addr.BitLen() {
			prefix, _ := addr.Prefix(bits)
			return prefix.Addr().String(), true
		}
	}
	v, ok := q.value(a)
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

// mac is HMAC-SHA256 over what it is for and the text.
func mac(secret []byte, purpose, text string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(purpose + "\x00" + text))
	return h.Sum(nil)
}

// secret returns the secret of the options, or of this process.
func (p *Policy) secret() []byte {
	if len(p.opts.Secret) > 0 {
		return p.opts.Secret
	}
	return processSecret()
}

// KeyHash returns 16 hexadecimal digits for the key of r.Rules[i], to tell
// keys apart in logs without showing them; they are the same for the same rule
// and key as long as the secret is. It is "" where there is no key.
func (r *Result) KeyHash(i int) string {
	h := r.hitOf(i)
	if h == nil || h.plan.id < 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(h.rule.name)
	b.WriteByte(0)
	b.WriteString(h.key)
	return hex.EncodeToString(mac(r.policy.secret(), "log", b.String())[:8])
}

// Key returns the key of r.Rules[i] as the store has it. It may hold what
// clients sent, secrets included.
func (r *Result) Key(i int) string {
	if h := r.hitOf(i); h != nil {
		return h.key
	}
	return ""
}

func (r *Result) hitOf(i int) *hit {
	if i < 0 || i >= len(r.Rules) || r.policy == nil {
		return nil
	}
	return &r.hits[r.Rules[i].hit]
}
