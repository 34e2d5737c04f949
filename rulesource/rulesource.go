// Package rulesource is the contract between what keeps rules, such as a file
// or a database, and what holds them in memory on every node.
//
// A [Source] has a [Version] that only grows. A reader that holds a version waits
// for another one with Wait, and reads it with Load: a whole document of rules, and
// the overrides that changed since the version held. The source is read in the
// background, never by a request.
package rulesource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// A Version says which state of a source a snapshot is. Two versions can be
// ordered only when their Identity is the same.
type Version struct {
	// Identity names the place: another database, or one that was made anew, has
	// another. It is empty for a source that has none.
	Identity string
	// Epoch grows each time that an operator accepts the source although it is
	// older than what nodes hold, as after a restore.
	Epoch int64
	// Revision is the number of the rules in force, from 1; 0 before the first.
	Revision int64
	// Change is the number of the last change of overrides or plans.
	Change int64
	// Mark is a text of chance that the source gives each version: one of the
	// same numbers with another mark is of another history, as after a restore.
	// It is empty for a source that has none.
	Mark string
}

// ForFullLoad returns the version to give to Load instead of v if you want all
// there is, not only what has changed since v.
func (v Version) ForFullLoad() Version {
	v.Identity = ""
	return v
}

// Follows reports whether a node that holds the version held may take v. It may
// not take an older state of the same source, as after a restore of a backup,
// nor another source or history, until an operator has said that it is right. Of a
// later version, [Snapshot.Strayed] says whether its history is another one.
func (v Version) Follows(held Version) bool {
	switch {
	case held == Version{}:
		return true
	case v.Identity != held.Identity:
		return v.Epoch > 0
	case v.Epoch != held.Epoch:
		return v.Epoch > held.Epoch
	}
	if v.Revision == held.Revision && v.Change == held.Change {
		return v.Mark == held.Mark || v.Mark == "" || held.Mark == ""
	}
	return v.Revision >= held.Revision && v.Change >= held.Change
}

// A Snapshot is a state of a source, read in one piece.
type Snapshot struct {
	Version Version
	// Name is what errors call the document; its ending, such as .yaml, says
	// what it is written in.
	Name string
	// Document is the text of the rules. It is nil when the caller holds the
	// revision already.
	Document []byte
	// Hash is that of the document of Version.Revision, see [HashOf].
	Hash string
	// Strayed reports that the version which the caller of Load holds is not in
	// the source's history: the source was restored to an older state, and
	// changed since. The caller may not take it until an operator has said that
	// it is right, and Version.Epoch has grown.
	Strayed bool `json:"-"`
	// Ahead is how far the source's clock is ahead of this machine's, by the
	// middle of a round trip; Doubt is half of that round trip. Times of
	// overrides go by the source's clock.
	Ahead, Doubt time.Duration
}

// HashOf returns the SHA-256 of a document, in hexadecimal.
func HashOf(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// An Override is a customer's own limits under a rule, in place of those that
// the rule has for all customers.
type Override struct {
	// Rule is the rule's name, Key the customer's key as the rule makes it.
	Rule, Key string
	// Limits are texts of limits. They are empty with Unlimited or Block.
	Limits []string
	// Unlimited lifts the rule's limits, Block denies.
	Unlimited, Block bool
	// Removed marks an override that is gone.
	Removed bool
	// Expires is when it ends, by the source's clock; zero is never.
	Expires time.Time
	// Created is when it was set, by the source's clock.
	Created time.Time
	// Reason and Author are for people.
	Reason, Author string
	// Change is the number of the change that set or removed it. Act is that of the
	// act in the audit; an undo puts it back with the override. 0 is not known.
	Change, Act int64
}

// A Plan says which plan the customers with a value of an attribute have.
type Plan struct {
	Attribute, Value string
	// Plan is the name of the plan, "" if the customer has none any more.
	Plan string
	// Created is when it was set, by the source's clock; Author is for people.
	Created time.Time
	Author  string
	// Change is the number of the change that set or removed it.
	Change int64
}

// A Receiver takes overrides and plans as they are read: there may be millions.
// Of one that comes more than once, the last counts. An error of it ends the
// reading.
type Receiver interface {
	// Begin is called before anything is handed over, with the snapshot that Load
	// will return. With whole, what follows is all there is, and what was received
	// before is out of date; else it is what has changed, with those that are
	// Removed.
	Begin(s *Snapshot, whole bool) error
	Override(o *Override) error
	Plan(p *Plan) error
}

// A Source keeps rules. Its methods may be called from many goroutines at once.
type Source interface {
	// Load reads the state of the source in one piece, and hands overrides and
	// plans to the receiver: what changed since the version that the caller
	// holds, or all. The zero Version holds nothing, and one without an Identity
	// asks for all. After an error, what was
	// received does not count. The error is ErrEmpty when there are no rules yet;
	// the snapshot has the version then.
	Load(ctx context.Context, held Version, to Receiver) (*Snapshot, error)
	// Wait returns nil once the source may have another version than held, or
	// the context's error. Waiting costs the source a small look now and then.
	Wait(ctx context.Context, held Version) error
	// Close ends what Wait uses.
	Close() error
}

// A Clock is a source that says how far its clock is ahead of this machine's, by
// the middle of a round trip, and half of that round trip. Sources whose
// overrides end implement it.
type Clock interface {
	Clock(ctx context.Context) (ahead, doubt time.Duration, err error)
}

// An OverrideFinder is a source that finds the override of one customer, for nodes
// that do not hold all overrides in memory.
type OverrideFinder interface {
	// FindOverride returns the override of a key under a rule, Removed if there is none.
	FindOverride(ctx context.Context, rule, key string) (Override, error)
}

// ErrPlansOnly is returned by [Receiver.Begin] of a node that asks for overrides one
// by one. An [OverrideFinder] then hands over everything except overrides.
var ErrPlansOnly = errors.New("no overrides are wanted")

// ErrEmpty is for a source that holds no rules yet.
var ErrEmpty = errors.New("there are no rules yet: stint rules push FILE puts some in force")
