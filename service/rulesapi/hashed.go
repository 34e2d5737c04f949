package rulesapi

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"
)

type hashedKey struct{}

// Hashed returns the context of a request that sees hashes instead of keys, whatever its role. The
// page of operators uses it.
func Hashed(ctx context.Context) context.Context { return context.WithValue(ctx, hashedKey{}, true) }

func hashed(ctx context.Context) bool { return ctx.Value(hashedKey{}) != nil }

// hide replaces the key of an override by its hash.
func (h *Handler) hide(o *Override) {
	key := o.Key
	if len(o.KeyBase64) > 0 {
		key = string(o.KeyBase64)
	}
	o.KeyHash = h.keyHash(o.Rule, key)
	if key != "" { // a rule may count all together
		o.Key, o.KeyBase64 = o.KeyHash, nil
	}
}

// An auditEntry is an act. If the request is [Hashed], it also has the rule, the key or its hash, and
// the hash, of its subject, as lists of keys do.
type auditEntry struct {
	rulesdb.AuditEntry
	Rule    string  `json:"rule,omitzero"`
	Key     *string `json:"key,omitzero"`
	KeyHash string  `json:"key_hash,omitzero"`
}

// hideSubject replaces the key in the subject of an act by its hash.
func (h *Handler) hideSubject(d *auditEntry) {
	rule, quoted, ok := strings.Cut(d.Subject, " ")
	key, err := strconv.Unquote(quoted)
	if !ok || err != nil || d.Act.Act == "key reveal" { // the subject of "key reveal" has the hash
		return
	}
	d.Rule, d.Key, d.KeyHash = rule, &key, h.keyHash(rule, key)
	if key != "" {
		key = d.KeyHash
	}
	d.Subject = fmt.Sprintf("%s %q", rule, key)
}

// cursors seals the cursors of hashed requests, since a cursor holds the last key of a page. They
// are valid as long as the process runs.
var cursors = sync.OnceValue(func() cipher.AEAD {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // crypto/rand never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // unreachable: the length is valid
	}
	sealed, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // unreachable: so is the block
	}
	return sealed
})

// NextPage returns a cursor behind the last override of a page. It is sealed if the request is
// [Hashed].
func NextPage(ctx context.Context, last rulesource.Override) string {
	text := cursor(last.Rule, last.Key)
	if hashed(ctx) {
		text = base64.RawURLEncoding.EncodeToString(cursors().Seal(nil, nil, []byte(text), nil))
	}
	return text
}

// AfterPage parses a cursor of [NextPage]: it returns the rule and the key of the last override of
// the page before.
func AfterPage(ctx context.Context, text string) (o rulesource.Override, err error) {
	if hashed(ctx) {
		sealed, _ := base64.RawURLEncoding.DecodeString(text)
		opened, _ := cursors().Open(nil, nil, sealed, nil) // a text that was not sealed here is opened as "", which is no cursor
		text = string(opened)
	}
	o.Rule, o.Key, err = after(text)
	return o, err
}
