package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesource"
)

// Options say how a [Source] binds and reloads rules.
type Options struct {
	// Policy are the options of the policy.
	Policy policy.Options
	// By are the interfaces through which requests come. Rules on attributes that none of them can
	// give are refused. The default value, none, refuses nothing.
	By request.Interfaces
	// Log receives reloads, refused files, once each, and warnings, without keys of clients. The
	// default discards them.
	Log *slog.Logger
	// OnReload is called after the first read, each reload and each refusal. It
	// must not call Reload, File or Held. Optional.
	OnReload func(at time.Time, err error)
}

// A Source is a policy whose rules come from a file or a Follower, and may change.
type Source struct {
	path     string // "" if there is no file
	o        Options
	settings Settings
	policy   atomic.Pointer[policy.Policy]
	empty    atomic.Bool // no decision is possible: the follower's source holds no rules yet

	mu      sync.Mutex // held during a reload; guards the fields below
	file    *File      // in force
	refused *refusal   // the last attempt; nil if it was put in force

	follower *Follower // nil if the rules come from a file
	name     string    // the name of the follower's source in the log
}

// A refusal is a content that was refused, and why.
type refusal struct {
	hash string // "" if the file could not be read
	err  error
}

// Open binds the rules of a file that has been read from a path to a store. Without a path there is
// no file: Reload does nothing, and Watch waits for the end of its context.
func Open(store stint.Store, path string, f *File, o Options) (*Source, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	var p *policy.Policy
	err := o.refuse(f)
	if err == nil {
		p, err = policy.New(store, f.Rules, o.Policy)
	}
	if err != nil {
		if path == "" {
			return nil, err
		}
		return nil, &Error{path, err}
	}
	s := &Source{path: path, o: o, settings: f.Settings, file: f}
	s.policy.Store(p)
	s.warn(f)
	s.notify(nil)
	return s, nil
}

// refuse returns why valid rules may not be used here.
func (o *Options) refuse(f *File) error {
	if o.By == 0 {
		return nil
	}
	if errs := f.Rules.File().Refused(o.By); len(errs) > 0 {
		return errs
	}
	return nil
}

// Policy returns the present policy. A request may go on using it after a reload.
func (s *Source) Policy() *policy.Policy { return s.policy.Load() }

// File returns the file in force.
func (s *Source) File() *File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

// Settings returns the settings of the file when it was opened. Changed settings take effect after
// a restart.
func (s *Source) Settings() Settings { return s.settings }

// Ready is for readiness checks. It returns nil once the source has rules; a failed reload leaves
// them in force. The source of a database may hold no rules yet, and then nothing can be decided.
func (s *Source) Ready() error {
	if !s.empty.Load() {
		return nil
	}
	_, problem := s.Held()
	return errors.New(problem)
}

// Reload reads the file again and puts it in force as a whole, or not at all. When it fails, the
// rules in force stay. The error says what is wrong in the file, or which limit the store cannot
// hold.
func (s *Source) Reload() error { return s.reload(true) }

// reload reads the file. It ignores a content that is in force, or was refused before, unless asked
// is true.
func (s *Source) reload(asked bool) error {
	if s.path == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := readFile(s.path)
	if err != nil {
		return s.refuse("", &Error{s.path, err})
	}
	hash := rulesource.HashOf(data)
	switch was := s.refused; {
	case was == nil && hash == s.file.hash:
		if asked {
			s.notify(nil)
		}
		return nil
	case was != nil && hash == was.hash && !asked:
		return was.err
	case hash == s.file.hash:
		s.refused = nil
		s.o.Log.Info("rules: the file is again what is in force", "file", s.path)
		s.notify(nil)
		return nil
	}
	f, err := Decode(s.path, data)
	if err != nil {
		return s.refuse(hash, err)
	}
	return s.take(f)
}

// take puts a file in force.
func (s *Source) take(f *File) error {
	if err := s.o.refuse(f); err != nil {
		return s.refuse(f.hash, &Error{s.path, err})
	}
	changes := f.Rules.Compare(s.file.Rules)
	p, err := s.policy.Load().Reload(f.Rules)
	if err != nil {
		return s.refuse(f.hash, &Error{s.path, err})
	}
	s.policy.Store(p)
	f.Since = time.Now()
	s.file, s.refused = f, nil
	s.o.Log.Info("rules: reloaded", "file", cmp.Or(s.path, s.name), "rules", len(f.Rules.Names()), "changes", len(changes))
	for i, c := range changes {
		if i == maxLogged {
			s.o.Log.Info("rules: more changes", "file", cmp.Or(s.path, s.name), "count", len(changes)-i)
			break
		}
		s.o.Log.Info("rules: changed", "rule", c.Rule, "what", c.What, "afresh", c.Fresh)
	}
	s.warn(f)
	s.notify(nil)
	return nil
}

// refuse leaves the rules in force, and logs once why.
func (s *Source) refuse(hash string, err error) error {
	if was := s.refused; was == nil || was.hash != hash || was.err.Error() != err.Error() {
		s.o.Log.Error("rules: not reloaded, the rules before stay in force", "file", cmp.Or(s.path, s.name), "err", err)
		s.notify(err)
	} else if hash != "" { // asked again; a missing file is looked for repeatedly and not logged each time
		s.notify(err)
	}
	s.refused = &refusal{hash, err}
	return err
}

func (s *Source) notify(err error) {
	if s.o.OnReload != nil {
		s.o.OnReload(time.Now(), err)
	}
}

// maxLogged is how many warnings or changes are logged at a time.
const maxLogged = 20

// ReservesOnly reports whether requests under limits in flight are refused here unless they are
// reserved: other calls do not say when a request ends.
func (s *Source) ReservesOnly() bool { return s.o.By&request.Serve != 0 }

// warn logs warnings, and changed settings that wait for a restart.
func (s *Source) warn(f *File) {
	for i, w := range f.Warnings {
		if i == maxLogged {
			s.o.Log.Warn("rules: more warnings, stint validate has them", "file", cmp.Or(s.path, s.name), "count", len(f.Warnings)-i)
			break
		}
		s.o.Log.Warn("rules: "+w.Reason, "file", cmp.Or(s.path, s.name), "line", w.Line, "column", w.Column, "rule", w.Rule, "hint", w.Hint)
	}
	if names := f.Rules.File().InFlight(""); s.ReservesOnly() && len(names) > 0 {
		s.o.Log.Warn("rules: /v1/reserve and STINT.RESERVE hold requests to limits in flight; all else here refuses what they match, since it does not learn when a request ends",
			"file", cmp.Or(s.path, s.name), "rules", strings.Join(names[:min(len(names), maxLogged)], ", "))
	}
	if names := s.settings.differ(f.Settings); len(names) > 0 {
		s.o.Log.Warn("rules: settings take effect by a restart", "file", cmp.Or(s.path, s.name), "settings", strings.Join(names, ", "))
	}
}

// differ returns the names of the settings that differ.
func (s Settings) differ(o Settings) (names []string) {
	same := []bool{slices.Equal(s.TrustedProxies, o.TrustedProxies), s.ClientIPHeader == o.ClientIPHeader, s.Store == o.Store}
	for i, ok := range same {
		if !ok {
			names = append(names, settingNames[i])
		}
	}
	return names
}

const (
	// quiet is how long no event may come before a file is read: editors and copies write in
	// several steps.
	quiet = 100 * time.Millisecond
	// patience bounds how long further events put off a reload.
	patience = 2 * time.Second
	// again is how often a missing directory is looked for.
	again = time.Second
)

// Watch reloads the rules when the file changes, until ctx ends, and then returns nil. It watches
// the directory of the file, and of the file that it links to. So it notices when the file is
// renamed, replaced, or linked again, as Kubernetes does. Where a file system does not report
// changes, as over a network, call Reload. The error says why watching cannot begin.
func (s *Source) Watch(ctx context.Context) error {
	if s.follower != nil {
		return s.follower.watch(ctx)
	}
	if s.path == "" {
		<-ctx.Done()
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", s.path, err)
	}
	defer w.Close()
	timer := time.NewTimer(0) // the file may have changed before it was watched
	defer timer.Stop()
	var first time.Time // the first event since the last reload; zero if there was none
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if !s.concerns(e) {
				continue
			}
		case <-w.Errors: // events may have been lost
		case <-timer.C:
			if !s.attend(w) {
				timer.Reset(again)
			}
			_ = s.reload(false) // the log and OnReload have the error
			first = time.Time{}
			continue
		}
		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(quiet, max(0, patience-time.Since(first))))
	}
}

// concerns reports whether the file may have changed. Writes to other files of the directory, such
// as logs, do not matter. Any file that is created, removed or renamed may be a link on the path to
// the file.
func (s *Source) concerns(e fsnotify.Event) bool {
	if e.Has(fsnotify.Create) || e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		return true
	}
	name := filepath.Base(e.Name)
	if name == filepath.Base(s.path) {
		return true
	}
	target, err := filepath.EvalSymlinks(s.path)
	return err != nil || name == filepath.Base(target)
}

// attend watches exactly the directories that matter now. It reports false if one does not exist.
func (s *Source) attend(w *fsnotify.Watcher) bool {
	dirs := []string{filepath.Dir(s.path)}
	target, err := filepath.EvalSymlinks(s.path)
	if err == nil && filepath.Dir(target) != dirs[0] {
		dirs = append(dirs, filepath.Dir(target))
	}
	for _, dir := range w.WatchList() {
		if !slices.Contains(dirs, dir) {
			_ = w.Remove(dir) // fails if the directory is gone
		}
	}
	ok := true
	for _, dir := range dirs {
		ok = w.Add(dir) == nil && ok
	}
	return ok
}
