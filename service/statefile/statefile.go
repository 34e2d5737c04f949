// Package statefile keeps in files what survives a restart: the usage of keys
// ([Snapshot]), and what operators do where rules are in a file: overrides and
// blocks, and the audit, in a small state file. It is for a hundred changes, not for
// a million customers: those belong in a database.
package statefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/atomicfile"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

const (
	mostOverrides = 10_000
	mostActs      = 1000 // older ones are forgotten
)

// Options say what a File keeps, and where.
type Options struct {
	// Path is the state file; "" keeps everything in memory alone.
	Path string
	// Source has the rules.
	Source *rules.Source
	// Writes is whether acts are kept here at all.
	Writes bool
	// Node is what this process calls itself.
	Node string
	// Log receives failures. The default discards them.
	Log *slog.Logger
}

// A File keeps overrides, blocks and resets in the state file. It is a rulesapi.Backend whose
// rules come from the rules file, and may be used from many goroutines at once.
type File struct {
	o     Options
	began time.Time

	mu     sync.Mutex
	lock   io.Closer // of the state file; nil while it is not had
	state  state
	timer  *time.Timer // to the next override that ends
	closed bool
}

// Open reads the state file, if there is one, and puts what it holds in force. A
// file that cannot be read is an error, and stays as it is.
func Open(o Options) (*File, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	k := &File{o: o, began: time.Now(), state: newState()}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.hold(); err != nil { // what it holds is in force here, as it is now
		o.Log.Warn("operators can change nothing here while another process keeps what they do in the same file", "error", err,
			"hint", "--state FILE names another file for this process; --state none keeps what operators do in memory")
	}
	if err := k.state.read(o.Path); err != nil {
		if k.lock != nil {
			_ = k.lock.Close() // nothing was written
		}
		return nil, err
	}
	k.end(time.Now())
	k.applyAll()
	return k, nil
}

// hold locks the state file, unless this process has it locked, and reports whether it
// was another's before, perhaps. The error is that another process has it. The caller
// has the lock of the File.
func (k *File) hold() (anew bool, err error) {
	if k.lock != nil || k.o.Path == "" || !k.o.Writes {
		return false, nil
	}
	k.lock, err = atomicfile.Lock(k.o.Path, 0)
	if held, ok := errors.AsType[*atomicfile.HeldError](err); ok {
		return false, unkept{held}
	}
	return k.lock != nil, nil // a file that cannot be locked cannot be written, either, or is on a disk without locks
}

// ready prepares an act: it fails while another process has the state file. Once that
// has ended, what it kept is in force here, too. The caller has the lock.
func (k *File) ready() error {
	anew, err := k.hold()
	if err != nil || !anew {
		return err
	}
	next := newState()
	if err := next.read(k.o.Path); err != nil {
		return unkept{errors.Join(err, k.unlock())}
	}
	for at := range k.state.overrides {
		if _, stays := next.overrides[at]; !stays {
			_ = k.apply(&rulesource.Override{Rule: at.rule, Key: at.key, Removed: true}) // to take away cannot fail
		}
	}
	k.state = next
	k.end(time.Now())
	k.applyAll()
	return nil
}

func (k *File) unlock() error {
	if k.lock == nil {
		return nil
	}
	lock := k.lock
	k.lock = nil
	return lock.Close()
}

// applyAll puts all overrides in force, in the policy of now. What cannot be is
// logged. The caller has the lock.
func (k *File) applyAll() {
	for at, o := range k.state.overrides {
		if err := k.apply(&o); err != nil {
			k.o.Log.Error("an override cannot be in force", "rule", at.rule, "error", err)
		}
	}
}

// apply puts one override in force.
func (k *File) apply(o *rulesource.Override) error {
	return rules.SetOverride(k.o.Source.Policy(), o)
}

// end takes away what has ended by now, and sets the timer for the next.
func (k *File) end(now time.Time) {
	var next time.Time
	for at, o := range k.state.overrides {
		switch {
		case o.Expires.IsZero():
		case !o.Expires.After(now):
			delete(k.state.overrides, at)
			_ = k.apply(&rulesource.Override{Rule: o.Rule, Key: o.Key, Removed: true}) // to take away cannot fail
		case next.IsZero() || o.Expires.Before(next):
			next = o.Expires
		}
	}
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
	if !next.IsZero() && !k.closed {
		k.timer = time.AfterFunc(time.Until(next), func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.end(time.Now())
		})
	}
}

// A refused error is an [rulesdb.ErrInput].
type refused struct{ error }

func (refused) Is(target error) bool { return target == rulesdb.ErrInput }

// An unkept error is a [rulesapi.ErrUnkept].
type unkept struct{ error }

func (e unkept) Error() string { return "the state file: " + e.error.Error() }

func (e unkept) Unwrap() error { return e.error }

func (unkept) Is(target error) bool { return target == rulesapi.ErrUnkept }

// Unwritable reports why the state file cannot be written; nil if there is none, or
// it can be.
func (k *File) Unwritable() error { return Unwritable(k.o.Path) }

// Unwritable reports why a state file could not be written.
func Unwritable(path string) error {
	if path == "" {
		return nil
	}
	return atomicfile.Try(path)
}

// SetOverride sets an override, or removes it if it is Removed, and returns the
// one before, Removed if there was none. It is in the state file once this
// returns.
func (k *File) SetOverride(ctx context.Context, o rulesource.Override, lasts time.Duration) (was, now rulesource.Override, err error) {
	if err := rulesdb.CheckReason(o.Reason); err != nil {
		return was, now, err
	}
	return k.SetOverrideIf(ctx, o, lasts, func(rulesource.Override) error { return nil })
}

// SetOverrideIf is [File.SetOverride] if may returns nil for the override before.
func (k *File) SetOverrideIf(_ context.Context, o rulesource.Override, lasts time.Duration, may func(held rulesource.Override) error) (was, now rulesource.Override, err error) {
	if err := rulesdb.CheckOverride(&o); err != nil {
		return was, now, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.ready(); err != nil {
		return was, now, err
	}
	moment := time.Now().UTC()
	k.end(moment)
	was = k.held(place{o.Rule, o.Key})
	if err := may(was); err != nil {
		return was, now, err
	}
	switch {
	case !was.Removed:
	case o.Removed:
		return was, now, fmt.Errorf("an override or block of this key under rule %s: %w", o.Rule, rulesdb.ErrNotFound)
	case len(k.state.overrides) >= mostOverrides:
		return was, now, refused{fmt.Errorf("there are %d overrides: a state file has no more; rules in a database have room for millions", mostOverrides)}
	}
	now = o
	if now.Created, now.Act = moment, k.state.number+1; lasts > 0 {
		now.Expires = moment.Add(lasts)
	}
	return was, now, k.change(was, now)
}

// change puts an override in the place of another, and an act into the audit. The caller
// has the lock.
func (k *File) change(was, now rulesource.Override) error {
	if err := k.apply(&now); err != nil {
		return refused{err}
	}
	next := k.state.with(place{now.Rule, now.Key}, now)
	next.before[next.note(now.Created, rulesdb.Change(&was, &now))] = was
	if err := k.keep(next); err != nil {
		_ = k.apply(&was) // it held before
		return err
	}
	k.end(now.Created)
	return nil
}

// UndoOverrides takes back an act that set or removed an override.
func (k *File) UndoOverrides(_ context.Context, number int64, author string) (did string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := errors.Join(k.ready(), k.state.notUndone(number)); err != nil {
		return "", err
	}
	moment := time.Now().UTC()
	k.end(moment)
	d := k.state.act(number)
	back, kept := k.state.before[number]
	if d == nil || !kept || d.Undoes() {
		return "", refused{fmt.Errorf("act %d is none on an override among the last %d: set what was before by hand", number, mostActs)}
	}
	held := k.held(place{back.Rule, back.Key})
	back, err = d.Back(held, back, moment)
	if err != nil {
		return "", err
	}
	back.Created, back.Author, back.Reason = moment, author, rulesdb.UndoOf(number)
	return rulesdb.Describe(&back), k.change(held, back)
}

// held returns the override of a place, with its last act where it is gone. The caller
// has the lock.
func (k *File) held(at place) rulesource.Override {
	if o, ok := k.state.overrides[at]; ok {
		return o
	}
	gone := rulesource.Override{Rule: at.rule, Key: at.key, Removed: true}
	subject := rulesdb.Change(&gone, &gone).Subject
	for _, d := range slices.Backward(k.state.acts) {
		was, ok := k.state.before[d.Number]
		if !ok || d.Subject != subject || was.Rule != at.rule || was.Key != at.key {
			continue
		}
		gone.Act = d.Number
		for i := range k.state.acts { // an undo puts back what was before another act
			if undone := k.state.acts[i].Number; d.Reason == rulesdb.UndoOf(undone) {
				gone.Act = k.state.before[undone].Act
			}
		}
		break
	}
	return gone
}

// Override returns the override of a key under a rule, or [rulesdb.ErrNotFound].
func (k *File) Override(_ context.Context, rule, key string) (rulesource.Override, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.state.overrides[place{rule, key}]
	if !ok || !o.Expires.IsZero() && !o.Expires.After(time.Now()) {
		return rulesource.Override{Rule: rule, Key: key, Removed: true}, fmt.Errorf("an override or block of this key under rule %s: %w", rule, rulesdb.ErrNotFound)
	}
	return o, nil
}

// Overrides returns a page of overrides, in the order of rules and keys.
func (k *File) Overrides(_ context.Context, p rulesdb.Page) ([]rulesource.Override, error) {
	k.mu.Lock()
	all := slices.Collect(maps.Values(k.state.overrides))
	k.mu.Unlock()
	slices.SortFunc(all, func(a, b rulesource.Override) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	all = slices.DeleteFunc(all, func(o rulesource.Override) bool {
		before := p.AfterRule != "" && (o.Rule < p.AfterRule || o.Rule == p.AfterRule && o.Key <= p.AfterKey)
		return before || p.Rule != "" && o.Rule != p.Rule || !strings.HasPrefix(o.Key, p.Prefix) ||
			!o.Expires.IsZero() && !o.Expires.After(time.Now())
	})
	n := p.N
	if n <= 0 {
		n = 100
	}
	return all[:min(n, len(all))], nil
}

// Audit returns up to n acts before a number, newest first; 0 begins at the
// newest.
func (k *File) Audit(_ context.Context, before int64, n int) ([]rulesdb.AuditEntry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []rulesdb.AuditEntry
	for _, d := range slices.Backward(k.state.acts) {
		if (before <= 0 || d.Number < before) && len(out) < n {
			out = append(out, d)
		}
	}
	return out, nil
}

// Note writes an act into the audit that changed something elsewhere, such as a
// key that was reset.
func (k *File) Note(_ context.Context, a rulesdb.Act) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.ready(); err != nil {
		return err
	}
	next := k.state.clone()
	next.note(time.Now().UTC(), a)
	return k.keep(next)
}

// NoteAct runs do, which acts elsewhere, once the audit has a. do adds to it what was
// before and is now. While the audit cannot be written, do is not run; after an error of
// do, the audit has nothing of it.
func (k *File) NoteAct(ctx context.Context, a rulesdb.Act, do func(ctx context.Context, a *rulesdb.Act) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.ready(); err != nil {
		return err
	}
	return k.intend(a, func(a *rulesdb.Act, _ time.Time) error { return do(ctx, a) })
}

// NoteUndo runs do, which takes an act back, once the audit says so, and adds what do
// returns, unless the act has been taken back before.
func (k *File) NoteUndo(ctx context.Context, act int64, do func(ctx context.Context, at time.Time) (rulesdb.Act, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := errors.Join(k.ready(), k.state.notUndone(act)); err != nil {
		return err
	}
	return k.intend(rulesdb.Act{Act: "undo", Reason: rulesdb.UndoOf(act)}, func(a *rulesdb.Act, at time.Time) error {
		did, err := do(ctx, at)
		did.Reason = a.Reason
		*a = did
		return err
	})
}

// intend writes an act to the file, has do carry it out, and writes what do has added to the
// act. If this second time fails, what was added stays in memory until the file is written
// again. If do fails, the act is taken out. The caller has the lock.
func (k *File) intend(a rulesdb.Act, do func(a *rulesdb.Act, at time.Time) error) error {
	moment := time.Now().UTC()
	next := k.state.clone()
	a.Now = begun
	number := next.note(moment, a)
	before := k.state
	if err := k.keep(next); err != nil {
		return err
	}
	a.Now = ""
	if err := do(&a, moment); err != nil {
		k.keepLater(before)
		return err
	}
	after := k.state.clone()
	after.act(number).Act = a
	k.keepLater(after)
	return nil
}

// begun is what the audit has in the place of what an act did until that is known.
const begun = "begun"

// keepLater has another state written, now or with the next act.
func (k *File) keepLater(next state) {
	if err := k.keep(next); err != nil {
		k.o.Log.Error("what an act did is not in the state file yet", "error", err)
		k.state = next
	}
}

// keep has another state written, which then is the state.
func (k *File) keep(next state) error {
	err := next.write(k.o.Path)
	if errors.Is(err, atomicfile.ErrUnsynced) {
		k.o.Log.Error("the state file cannot be synced", "file", k.o.Path, "error", err)
	} else if err != nil {
		return unkept{err}
	}
	k.state = next
	return nil
}

// Revision returns the file in force, which is revision 1.
func (k *File) Revision(_ context.Context, number int64) (rulesdb.Revision, error) {
	if number > 1 {
		return rulesdb.Revision{}, fmt.Errorf("revision %d: %w: of a file there is the one in force", number, rulesdb.ErrNotFound)
	}
	f := k.o.Source.File()
	return rulesdb.Revision{Number: 1, Created: k.since(f), Name: f.Name, Hash: f.Hash(), Document: f.Document}, nil
}

// since returns when the file came into force.
func (k *File) since(f *rules.File) time.Time {
	if f.Since.IsZero() {
		return k.began
	}
	return f.Since
}

// Revisions returns the file in force, without its text.
func (k *File) Revisions(ctx context.Context, before int64, _ int) ([]rulesdb.Revision, error) {
	if before == 1 {
		return nil, nil
	}
	r, err := k.Revision(ctx, 1)
	r.Document = nil
	return []rulesdb.Revision{r}, err
}

// Nodes returns this process.
func (k *File) Nodes(context.Context, time.Duration) ([]rulesdb.Node, error) {
	_, problem := k.o.Source.Held()
	f := k.o.Source.File()
	return []rulesdb.Node{{Name: k.o.Node, Version: rulesource.Version{Revision: 1}, Hash: f.Hash(), Since: k.since(f), Seen: time.Now(), Error: problem}}, nil
}

// errFile is for what a file has not.
var errFile = refused{errors.New("the rules are in a file: change that, and it is read again; --rules has them in a database")}

// FileOnly returns why rules are not published here.
func (k *File) FileOnly() error { return errFile }

// Publish refuses: people edit the file.
func (k *File) Publish(context.Context, int64, rulesdb.Revision) (rulesdb.Revision, error) {
	return rulesdb.Revision{}, errFile
}

// Rollback refuses, too.
func (k *File) Rollback(context.Context, int64, int64, string, string) (rulesdb.Revision, error) {
	return rulesdb.Revision{}, errFile
}

// Accept refuses, too.
func (k *File) Accept(context.Context, string, string) error { return errFile }

// errPlans is for plans, of which there may be millions.
var errPlans = refused{errors.New("customers have plans of their own where rules are in a database: --rules names it; an override gives one customer other limits here")}

// Plan returns [rulesdb.ErrNotFound]: a rules file has no plans.
func (k *File) Plan(_ context.Context, attribute, _ string) (rulesource.Plan, error) {
	return rulesource.Plan{}, fmt.Errorf("plan of %s: %w", attribute, rulesdb.ErrNotFound)
}

// Plans returns none.
func (k *File) Plans(context.Context, string, rulesource.Plan, int) ([]rulesource.Plan, error) {
	return nil, nil
}

// SetPlan refuses.
func (k *File) SetPlan(context.Context, string, string, string, string, string) (string, error) {
	return "", errPlans
}

// errTokens is for tokens that a file has not.
var errTokens = refused{errors.New("tokens are in files of their own here, as --operator-token-file names one: stint token make NAME --file FILE adds to it")}

// NewToken refuses: tokens are in files.
func (k *File) NewToken(context.Context, string, string, rulesdb.Role, time.Duration) (string, error) {
	return "", errTokens
}

// RevokeToken refuses, too.
func (k *File) RevokeToken(context.Context, string, string) error { return errTokens }

// Tokens returns none.
func (k *File) Tokens(context.Context) ([]rulesdb.Token, error) { return nil, nil }

// String names the state file.
func (k *File) String() string { return cmp.Or(k.o.Path, "memory") }

// Close stops the timer, and lets others have the file. What was done stays in force.
func (k *File) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
	return k.unlock()
}
