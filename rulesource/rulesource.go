// Package rulesource is the contract between a keeper of rules, such as a file or a database, and
// the nodes that hold them in memory.
//
// A [Source] has a [Version] that only grows. A reader that holds a version waits for a newer one
// with Wait, and reads it with Load: the whole document of rules, and the overrides that changed
// since the version held. The source is read in the background, never by a request.
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
	// Identity names the source. A different database, or one that was created again, has a
	// different identity. It is empty for a source without one.
	Identity string
	// Epoch grows each time that an operator accepts the source although it is
	// older than what nodes hold, as after a restore.
	Epoch int64
	// Revision is the number of the rules in force, from 1; 0 before the first.
	Revision int64
	// Change is the number of the last change of overrides or plans.
	Change int64
	// Mark is a random text that the source gives each version. The same numbers with a different
	// mark are of a different history, as after a restore. It is empty for a source without marks.
	Mark string
}

// ForFullLoad returns the version to give to Load instead of v in order to read everything, not
// only the changes since v.
func (v Version) ForFullLoad() Version {
	v.Identity = ""
	return v
}

// Follows reports whether a node that holds the version held may take v. It may not take an older
// state of the same source, as after a restore of a backup, nor a different source or history,
// until an operator has accepted it. Whether a later version is of a different history is in
// [Snapshot.Strayed].
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
	// Name is what errors call the document. Its ending, such as .yaml, says which format the
	// document has.
	Name string
	// Document is the text of the rules. It is nil when the caller holds the
	// revision already.
	Document []byte
	// Hash is the hash of the document of Version.Revision; see [HashOf].
	Hash string
	// Strayed reports that the caller of Load holds a version which is not in the source's history:
	// the source was restored to an older state, and changed since. The caller may not take the
	// snapshot until an operator has accepted it, and Version.Epoch has grown.
	Strayed bool `json:"-"`
	// Refused says why some of the overrides or plans cannot be held; those are as they were
	// before. It is nil if all can be held.
	Refused error `json:"-"`
	// Kept is what the source needs of this state after a restart. A copy of the rules has it too;
	// only the source reads it.
	Kept []byte `json:",omitempty"`
	// Ahead is how far the source's clock is ahead of this machine's, measured at the middle of a
	// round trip; Doubt is half of that round trip. The times of overrides are by the source's
	// clock.
	Ahead, Doubt time.Duration
}

// HashOf returns the SHA-256 of a document, in hexadecimal.
func HashOf(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// An Override is a customer's own limits under a rule, in place of the limits that the rule has for
// all customers.
type Override struct {
	// Rule is the name of the rule. Key is the customer's key as the rule makes it.
	Rule, Key string
	// Limits are texts of limits. They are empty with Unlimited or Block.
	Limits []string
	// Unlimited lifts the rule's limits. Block denies every request.
	Unlimited, Block bool
	// Removed marks an override that was removed.
	Removed bool
	// Expires is when the override ends, by the source's clock; zero is never.
	Expires time.Time
	// Created is when the override was set, by the source's clock.
	Created time.Time
	// Reason and Author are for people.
	Reason, Author string
	// Change is the number of the change that set or removed the override. Act is the number of the
	// act in the audit; an undo restores it with the override. 0 means unknown.
	Change, Act int64
}

// A Plan assigns a plan to the customers that have a value of an attribute.
type Plan struct {
	Attribute, Value string
	// Plan is the name of the plan, or "" if the customers no longer have one.
	Plan string
	// Created is when the plan was set, by the source's clock. Author is for people.
	Created time.Time
	Author  string
	// Change is the number of the change that set or removed the plan.
	Change int64
}

// A Receiver takes overrides and plans one by one as they are read, since there may be millions. An
// override or plan may come more than once; the last one counts. An error of a method ends the
// reading.
type Receiver interface {
	// Begin is called before anything is handed over, with the snapshot that Load will return. If
	// whole is true, everything follows, and what was received before is out of date. Otherwise
	// only changes follow, among them overrides that are Removed.
	Begin(s *Snapshot, whole bool) error
	Override(o *Override) error
	Plan(p *Plan) error
}

// A Source keeps rules. Its methods may be called from many goroutines at once.
type Source interface {
	// Load reads the state of the source in one piece, and hands overrides and plans to the
	// receiver: those that changed since the version held, or all. The zero Version holds nothing,
	// and a version without an Identity asks for all. After an error, what was received does not
	// count. While there are no rules yet, the error is ErrEmpty and the snapshot has the version.
	Load(ctx context.Context, held Version, to Receiver) (*Snapshot, error)
	// Wait returns nil once the source may have a version other than held, or the context's error.
	// While it waits it makes a small read now and then.
	Wait(ctx context.Context, held Version) error
	// Close releases what Load and Wait use.
	Close() error
}

// A Clock is a source that says how far its clock is ahead of this machine's, measured at the
// middle of a round trip, and half of that round trip. Sources whose overrides expire implement it.
type Clock interface {
	Clock(ctx context.Context) (ahead, doubt time.Duration, err error)
}

// An OverrideFinder is a source that finds the override of one customer, for nodes that do not hold
// all overrides in memory.
type OverrideFinder interface {
	// FindOverride returns the override of a key under a rule, Removed if there is none.
	FindOverride(ctx context.Context, rule, key string) (Override, error)
}

// ErrPlansOnly is what [Receiver.Begin] returns on a node that asks for overrides one by one. An
// [OverrideFinder] then hands over plans only.
var ErrPlansOnly = errors.New("no overrides are wanted")

// ErrEmpty says that a source holds no rules yet.
var ErrEmpty = errors.New("there are no rules yet: stint rules push FILE puts some in force")
