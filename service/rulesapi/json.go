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

// A Revision is a revision as JSON. Document is present only where it was asked for.
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

// An Override is an override as JSON. A key that is not UTF-8 is in KeyBase64. KeyHash replaces the
// key where the request is [Hashed]. Note is the result of [Note], in lists.
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
	Note      string    `json:"note,omitzero"`
}

// OverrideOf returns an override as JSON; nil if it is removed.
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
}

// Nodes returns nodes as JSON. clear says that texts which quote the rules may be shown.
func Nodes(all []rulesdb.Node, clear bool) []Node {
	return List(all, func(n rulesdb.Node) Node {
		return Node{n.Name, n.Version.Revision, n.Version.Change, n.Hash, n.Since, n.Seen, Fault(n.Error, clear)}
	})
}

func (j *Node) node() rulesdb.Node {
	return rulesdb.Node{Name: j.Node, Version: rulesource.Version{Revision: j.Version, Change: j.Change},
		Hash: j.Hash, Since: j.Since, Seen: j.Seen, Error: j.Error}
}

// List returns a list as JSON, never null.
func List[T, J any](all []T, of func(T) J) []J {
	out := make([]J, len(all))
	for i, one := range all {
		out[i] = of(one)
	}
	return out
}

// cursor returns a cursor behind the end of a page, from the two columns by which it is ordered.
func cursor(first, second string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(first + "\n" + second))
}

// after parses the result of cursor.
func after(cursor string) (first, second string, err error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	first, second, ok := strings.Cut(string(text), "\n")
	if err != nil || !ok {
		return "", "", &InputError{"after", errors.New("want the field next of the page before")}
	}
	return first, second, nil
}
