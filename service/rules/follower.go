package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulescopy"
)

const (
	// firstTry is how long a source may take to answer at the start when there is a last copy,
	// firstPatience when there is none.
	firstTry      = 700 * time.Millisecond
	firstPatience = 10 * time.Second
	// reportEvery is how often a node reports to its source, and reportWithin how long a report may
	// take.
	reportEvery  = 5 * time.Second
	reportWithin = 2 * time.Second
	// lookAgain is the least wait before a source that failed is asked again. As much is added at
	// random.
	lookAgain = 500 * time.Millisecond
	// reachWithin is how long a writer waits until its node has read what it wrote.
	reachWithin = 2 * time.Second
)

// A Node is what a node reports of itself to its source.
type Node struct {
	Version rulesource.Version
	Hash    string
	Since   time.Time // when it took the version
	Error   string    // why it does not hold the newest version; "" if it does
}

// Following are the options of a node that follows a source.
type Following struct {
	// Source keeps the rules.
	Source rulesource.Source
	// Name is the name of the source in the log and in errors.
	Name string
	// Copy is the path of the last good copy; "" keeps none.
	Copy string
	// Patience is how long the first read may take where there is no copy. The default value, 0, is
	// ten seconds.
	Patience time.Duration
	// Report is called with the state of the node. Optional.
	Report func(ctx context.Context, n Node) error
	// Log receives changes and failures. The default discards them.
	Log *slog.Logger
}

// A Follower holds the rules of a source, and customers' own limits, in a [Source] of this package,
// and keeps them up to date. Make one with [Follow].
type Follower struct {
	f        Following
	copy     *rulescopy.File
	lost     string             // why the copy lacks something that is held; "" if it lacks nothing
	from     rulesource.Source  // where the first state came from
	held     rulesource.Version // the version in force
	hash     string
	since    time.Time
	problem  string             // why the newest version is not in force; "" if it is
	tried    rulesource.Version // the last version that was read, in force or refused
	retried  chan struct{}      // closed and replaced when tried has changed
	source   *Source
	expiry   *expiries
	wall     func() time.Time // this machine's clock, set by tests; nil for time.Now
	left     leftOut          // overrides of the source that are not in force
	unlisted bool             // the log has said that the report of this node cannot be written
	demand   *onDemand        // nil while all overrides are in memory
}

// errEnough ends a read once the document has come.
var errEnough = errors.New("enough")

// A documentOnly is a receiver that wants the document and nothing else.
type documentOnly struct{ s *rulesource.Snapshot }

func (d *documentOnly) Begin(s *rulesource.Snapshot, _ bool) error { d.s = s; return errEnough }
func (d *documentOnly) Override(*rulesource.Override) error        { return errEnough }
func (d *documentOnly) Plan(*rulesource.Plan) error                { return errEnough }

// Follow reads the rules from a source, or from its last copy if the source does not answer, or
// fails. It follows an empty source too, with a file that has no rules and is not ready. Open binds
// the file to a store.
func Follow(ctx context.Context, f Following) (*Follower, *File, error) {
	f.Log = cmp.Or(f.Log, slog.New(slog.DiscardHandler))
	w := &Follower{f: f, retried: make(chan struct{}), copy: rulescopy.NewFile(f.Copy), from: f.Source}
	patience := cmp.Or(f.Patience, firstPatience)
	last, there := w.copy.Last()
	if there {
		patience = firstTry
	}
	kept := last.Version
	s, err := readDocument(ctx, f.Source, kept, patience)
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	var file *File
	if err == nil && there && (s.Strayed || !s.Version.Follows(kept)) {
		err = errOlder // the source is older than what this node held before it was restarted
	}
	if err == nil {
		file, err = w.decode(s)
	}
	switch {
	case errors.Is(err, rulesource.ErrEmpty) && !there:
		w.problem = err.Error()
		f.Log.Warn("rules: the source holds none: requests are refused until it does", "source", f.Name)
		return w, &File{Rules: policy.NotReady()}, nil
	case err != nil && !there:
		return nil, nil, fmt.Errorf("the rules cannot be read, and there is no copy of them here: %w", err)
	case err != nil:
		f.Log.Error("rules: the source cannot be read: the last copy is in force until it can", "source", f.Name, "copy", f.Copy, "err", err)
		w.problem, w.from = "started from the last copy: "+err.Error(), w.copy
		if s, err = ReadDocument(ctx, w.from, firstPatience); err == nil {
			file, err = w.decode(s)
		}
	}
	return w, file, err
}

// ReadDocument reads the document of a source, which must answer within patience.
func ReadDocument(ctx context.Context, from rulesource.Source, patience time.Duration) (*rulesource.Snapshot, error) {
	return readDocument(ctx, from, rulesource.Version{}, patience)
}

// readDocument is ReadDocument for a node that has a copy of the version kept.
func readDocument(ctx context.Context, from rulesource.Source, kept rulesource.Version, patience time.Duration) (*rulesource.Snapshot, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var d documentOnly
	if _, err := from.Load(ctx, kept.ForFullLoad(), &d); !errors.Is(err, errEnough) {
		if err == nil {
			err = errors.New("it handed nothing over")
		}
		return nil, err
	}
	return d.s, nil
}

// A Decoder is a source that has decoded its documents already.
type Decoder interface {
	// File returns the decoded document with a hash, or nil if the source does not hold it.
	File(hash string) *File
}

// decode returns the file of a snapshot, which may be the file in force.
func (w *Follower) decode(s *rulesource.Snapshot) (*File, error) {
	if w.source != nil && w.hash == s.Hash {
		return w.source.File(), nil
	}
	if from, has := w.f.Source.(Decoder); has {
		if file := from.File(s.Hash); file != nil {
			return file, nil
		}
	}
	return Decode(s.Name, s.Document)
}

// Open binds the first rules to a store and reads the overrides. It returns once the node can
// decide.
func (w *Follower) Open(ctx context.Context, store stint.Store, first *File, o Options) (*Source, error) {
	s, err := Open(store, "", first, o)
	if err != nil {
		return nil, err
	}
	s.follower, s.name, w.source, w.hash = w, w.f.Name, s, first.hash
	s.empty.Store(w.problem != "" && w.from == w.f.Source)
	w.expiry = newExpiries(func(rule, key string) error { return s.Policy().ChangeOverride(rule, key, policy.Override{}) })
	w.expiry.clock.wall = w.wall
	if !s.empty.Load() {
		if _, err := w.load(ctx, w.from, nil); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Held returns the version in force, and why the newest version, or the file as it is now, is not in
// force, if it is not. A file has no version.
func (s *Source) Held() (v rulesource.Version, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.follower != nil:
		return s.follower.held, s.follower.problem
	case s.refused != nil:
		return v, "not reloaded, the rules before stay in force: " + s.refused.err.Error()
	}
	return v, ""
}

// watch follows the source until ctx ends.
func (w *Follower) watch(ctx context.Context) error {
	defer w.expiry.stop()
	seen := w.held
	if _, problem := w.source.Held(); problem != "" {
		seen = rulesource.Version{} // makes the next wait return at once, which ends the trouble
	}
	changed := make(chan struct{}, 1)
	var beside sync.WaitGroup
	beside.Go(func() { w.reportAll(ctx, changed) })
	beside.Go(func() { w.keepTime(ctx) })
	for ctx.Err() == nil {
		again, err := w.wait(ctx, seen)
		if err == nil && !again {
			if seen, err = w.take(ctx, seen); err == nil {
				w.try(seen)
			}
		}
		if again {
			seen = rulesource.Version{}
		}
		if err != nil && ctx.Err() == nil {
			w.trouble(w.named(err))
			seen = rulesource.Version{} // makes the next wait return at the first answer
			aside.Sleep(ctx, lookAgain+rand.N(lookAgain))
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	beside.Wait()
	return nil
}

// wait waits for a version other than seen. It returns true when it is time to write the copy again
// because it lacks something.
func (w *Follower) wait(ctx context.Context, seen rulesource.Version) (again bool, err error) {
	at, lacks := w.copy.Retry()
	if !lacks || seen == (rulesource.Version{}) {
		return false, w.f.Source.Wait(ctx, seen)
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	timer := time.AfterFunc(time.Until(at), stop)
	defer timer.Stop()
	err = w.f.Source.Wait(waiting, seen)
	if waiting.Err() != nil && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

// try records that a version was read.
func (w *Follower) try(v rulesource.Version) {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.tried = v
	close(w.retried)
	w.retried = make(chan struct{})
}

// Reach returns once this node has read a version that was just written to the source, or a later
// one, whether it is in force or refused. It does not wait for a source that does not answer.
func (s *Source) Reach(ctx context.Context, v rulesource.Version) {
	ctx, stop := context.WithTimeout(ctx, reachWithin)
	defer stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		tried, turn := s.follower.tried, s.follower.retried
		s.mu.Unlock()
		if tried.Epoch > v.Epoch || tried.Epoch == v.Epoch && tried.Revision >= v.Revision && tried.Change >= v.Change {
			return
		}
		select {
		case <-ctx.Done():
		case <-turn:
		}
	}
}

// named puts the source's name before an error that does not begin with it.
func (w *Follower) named(err error) string {
	if strings.HasPrefix(err.Error(), w.f.Name) {
		return err.Error()
	}
	return w.f.Name + ": " + err.Error()
}

// reportAll reports now and then, and when something has changed, until ctx ends. It runs beside
// the waiting, which may take long to notice that a source does not answer.
func (w *Follower) reportAll(ctx context.Context, changed <-chan struct{}) {
	for tick := time.NewTicker(reportEvery); ; {
		w.report(ctx)
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// take loads what is new, and returns the version that it has seen, in force or refused.
func (w *Follower) take(ctx context.Context, seen rulesource.Version) (rulesource.Version, error) {
	// Loading takes half of a processor, since a rest of 500 µs lasts a millisecond where nothing else
	// runs. Changes that come meanwhile wait.
	s, err := w.load(ctx, w.f.Source, &aside.Slices{Work: time.Millisecond, Rest: 500 * time.Microsecond})
	refused, bad := errors.AsType[*refusedVersion](err)
	switch {
	case err == nil:
		return w.held, nil
	case bad:
		w.trouble(refused.Error())
		return refused.version, nil
	case errors.Is(err, rulesource.ErrEmpty) && s != nil:
		if w.held.Revision > 0 {
			w.trouble("the source holds no rules any more: what is held stays in force")
		}
		return s.Version, nil
	}
	return seen, err
}

// trouble records why the newest version is not in force, and logs it once.
func (w *Follower) trouble(why string) {
	w.source.mu.Lock()
	again := w.problem == why
	w.problem = why
	w.source.mu.Unlock()
	if !again {
		w.f.Log.Error("rules: what is held stays in force", "source", w.f.Name, "revision", w.held.Revision, "change", w.held.Change, "err", why)
		w.source.notify(errors.New(why))
	}
}

// report writes the report of this node. A failure to write is no trouble for the node.
func (w *Follower) report(ctx context.Context) {
	if w.f.Report == nil {
		return
	}
	within, stop := context.WithTimeout(ctx, reportWithin)
	defer stop()
	w.source.mu.Lock()
	n := Node{w.held, w.hash, w.since, w.problem}
	w.source.mu.Unlock()
	err := w.f.Report(within, n)
	// If the source cannot be read either, the log has said so.
	if err != nil && !w.unlisted && n.Error == "" && ctx.Err() == nil {
		w.f.Log.Warn("rules: stint rules nodes does not list this node, since its row cannot be written, as in a standby of a database", "source", w.f.Name, "err", err)
		w.unlisted = true
	} else if err == nil {
		w.unlisted = false
	}
}

// A refusedVersion is the error for a version that was read and refused.
type refusedVersion struct {
	version rulesource.Version
	why     error
}

func (e *refusedVersion) Error() string {
	return fmt.Sprintf("revision %d, change %d is not taken: %v", e.version.Revision, e.version.Change, e.why)
}
