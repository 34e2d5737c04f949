package rulesapi

import (
	"encoding/base64"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"
)

// A Revision is a revision as JSON. Document is there where one was asked for.
type Revision struct {
	Version  int64     `json:"version"`
	Parent   int64     `json:"parent"`
	Author   string    `json:"author"`
	At       time.Time `json:"at"`
	Comment  string    `json:"comment"`
	Hash     string    `json:"hash"`
	Name     string    `json:"name,omitzero"`
	Document string    `json:"document,omitzero"`
}

// RevisionOf returns a revision as JSON has it.
func RevisionOf(r rulesdb.Revision) Revision {
	return Revision{r.Number, r.Parent, r.Author, r.Created, r.Comment, r.Hash, r.Name, string(r.Document)}
}

func (r *Revision) revision() rulesdb.Revision {
	return rulesdb.Revision{Number: r.Version, Parent: r.Parent, Author: r.Author, Created: r.At,
		Comment: r.Comment, Name: r.Name, Hash: r.Hash, Document: []byte(r.Document)}
}

// An Override is an override as JSON. A key that is no UTF-8 is KeyBase64. KeyHash
// is there where it stands in the place of the key, see [Hashed].
type Override struct {
	Rule      string    `json:"rule"`
	Key       string    `json:"key"`
	KeyBase64 []byte    `json:"key_base64,omitzero"`
	KeyHash   string    `json:"key_hash,omitzero"`
	Limits    []string  `json:"limits,omitzero"`
	Unlimited bool      `json:"unlimited,omitzero"`
	Block     bool      `json:"block,omitzero"`
	At        time.Time `json:"at,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	Reason    string    `json:"reason,omitzero"`
	Author    string    `json:"author,omitzero"`
}

// OverrideOf returns an override as JSON has it; nil for one that is removed.
func OverrideOf(o rulesource.Override) *Override {
	if o.Removed {
		return nil
	}
	j := &Override{Rule: o.Rule, Key: o.Key, Limits: o.Limits, Unlimited: o.Unlimited, Block: o.Block,
		At: o.Created, Expires: o.Expires, Reason: o.Reason, Author: o.Author}
	if !utf8.ValidString(o.Key) {
		j.Key, j.KeyBase64 = "", []byte(o.Key)
	}
	return j
}

func (j *Override) override() rulesource.Override {
	if j == nil {
		return rulesource.Override{Removed: true}
	}
	o := rulesource.Override{Rule: j.Rule, Key: j.Key, Limits: j.Limits, Unlimited: j.Unlimited, Block: j.Block,
		Created: j.At, Expires: j.Expires, Reason: j.Reason, Author: j.Author}
	if len(j.KeyBase64) > 0 {
		o.Key = string(j.KeyBase64)
	}
	return o
}

// A Node is a node as JSON.
type Node struct {
	Node    string    `json:"node"`
	Version int64     `json:"version"`
	Change  int64     `json:"change"`
	Hash    string    `json:"hash"`
	Since   time.Time `json:"since"`
	Seen    time.Time `json:"seen"`
	Error   string    `json:"error"`
	Address string    `json:"address,omitzero"` // of --admin, as it says
}

// NodeOf returns a node as JSON has it.
func NodeOf(n rulesdb.Node) Node {
	return Node{n.Name, n.Version.Revision, n.Version.Change, n.Hash, n.Since, n.Seen, n.Error, n.Address}
}

func (j *Node) node() rulesdb.Node {
	return rulesdb.Node{Name: j.Node, Version: rulesource.Version{Revision: j.Version, Change: j.Change},
		Hash: j.Hash, Since: j.Since, Seen: j.Seen, Error: j.Error, Address: j.Address}
}

// An AuditEntry is an act of the audit as JSON.
type AuditEntry struct {
	Number  int64     `json:"number"`
	At      time.Time `json:"at"`
	Author  string    `json:"author"`
	Act     string    `json:"act"`
	Subject string    `json:"subject"`
	Was     string    `json:"was"`
	Now     string    `json:"now"`
	Reason  string    `json:"reason"`
	// Rule and KeyHash are there where Subject has the hash of a key, see [Hashed].
	Rule    string `json:"rule,omitzero"`
	KeyHash string `json:"key_hash,omitzero"`
}

// AuditEntryOf returns an act as JSON has it.
func AuditEntryOf(d rulesdb.AuditEntry) AuditEntry {
	return AuditEntry{Number: d.Number, At: d.At, Author: d.Author, Act: d.Act.Act, Subject: d.Subject, Was: d.Was, Now: d.Now, Reason: d.Reason}
}

func (j *AuditEntry) done() rulesdb.AuditEntry {
	return rulesdb.AuditEntry{Number: j.Number, At: j.At, Act: rulesdb.Act{Author: j.Author, Act: j.Act, Subject: j.Subject, Was: j.Was, Now: j.Now, Reason: j.Reason}}
}

// A Token is a token as JSON, without what it is.
type Token struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"`
	At      time.Time `json:"at"`
	Expires time.Time `json:"expires,omitzero"`
	Revoked time.Time `json:"revoked,omitzero"`
}

// TokenOf returns a token as JSON has it.
func TokenOf(t rulesdb.Token) Token {
	return Token{t.Name, string(t.Role), t.Created, t.Expires, t.Revoked}
}

func (j *Token) token() rulesdb.Token {
	return rulesdb.Token{Name: j.Name, Role: rulesdb.Role(j.Role), Created: j.At, Expires: j.Expires, Revoked: j.Revoked}
}

// List returns all of a list as JSON has it, never nil.
func List[T, J any](all []T, of func(T) J) []J {
	out := make([]J, len(all))
	for i, one := range all {
		out[i] = of(one)
	}
	return out
}

// Cursor says where a page of overrides ends; the next one begins behind it.
func Cursor(o rulesource.Override) string {
	return base64.RawURLEncoding.EncodeToString([]byte(o.Rule + "\n" + o.Key))
}

// After reads what [Cursor] wrote: the rule and the key of the last override of
// the page before.
func After(cursor string) (o rulesource.Override, err error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	rule, key, ok := strings.Cut(string(text), "\n")
	if err != nil || !ok {
		return o, &InputError{"after", errors.New("want the field next of the page before")}
	}
	return rulesource.Override{Rule: rule, Key: key}, nil
}
