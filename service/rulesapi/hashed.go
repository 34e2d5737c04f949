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

// Hashed returns the context of a request that is shown hashes in the place of
// keys, whatever the role is: as the page of operators asks.
func Hashed(ctx context.Context) context.Context { return context.WithValue(ctx, hashedKey{}, true) }

func hashed(ctx context.Context) bool { return ctx.Value(hashedKey{}) != nil }

// hide puts the hash in the place of the key of an override.
func (h *Handler) hide(o *Override) {
	key := o.Key
	if len(o.KeyBase64) > 0 {
		key = string(o.KeyBase64)
	}
	o.KeyHash = h.keyHash(o.Rule, key)
	o.Key, o.KeyBase64 = o.KeyHash, nil
}

// An auditEntry is an act with, where the request is [Hashed], the rule and the hash of
// the key that its subject has.
type auditEntry struct {
	rulesdb.AuditEntry
	Rule    string `json:"rule,omitzero"`
	KeyHash string `json:"key_hash,omitzero"`
}

// hideSubject puts the hash in the place of the key that an act is about.
func (h *Handler) hideSubject(d *auditEntry) {
	rule, quoted, ok := strings.Cut(d.Subject, " ")
	key, err := strconv.Unquote(quoted)
	if !ok || err != nil || d.Act.Act == "key reveal" { // which names the hash
		return
	}
	d.Rule, d.KeyHash = rule, h.keyHash(rule, key)
	d.Subject = fmt.Sprintf("%s %q", rule, d.KeyHash)
}

// cursors seals the cursors of requests that are hashed: one holds the last key of
// a page. They are good for as long as the process runs.
var cursors = sync.OnceValue(func() cipher.AEAD {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the length is right
	}
	sealed, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // so is the block
	}
	return sealed
})

// NextPage says where a page of overrides ends, sealed if the request is [Hashed]; the
// next one begins behind it.
func NextPage(ctx context.Context, last rulesource.Override) string {
	text := cursor(last.Rule, last.Key)
	if hashed(ctx) {
		text = base64.RawURLEncoding.EncodeToString(cursors().Seal(nil, nil, []byte(text), nil))
	}
	return text
}

// AfterPage reads what [NextPage] wrote: the rule and the key of the last override of
// the page before.
func AfterPage(ctx context.Context, text string) (o rulesource.Override, err error) {
	if hashed(ctx) {
		sealed, _ := base64.RawURLEncoding.DecodeString(text)
		opened, _ := cursors().Open(nil, nil, sealed, nil) // of what it has not sealed nothing, which is no cursor
		text = string(opened)
	}
	o.Rule, o.Key, err = after(text)
	return o, err
}
