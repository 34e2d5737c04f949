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
	// Policy is what the policy needs beside its store and rules.
	Policy policy.Options
	// By is the interfaces by which requests come. Rules that look at what none of them can
	// give are refused. The default value is none, which refuses nothing.
	By request.Interfaces
	// Log receives reloads, refused files, once for each, and warnings, without
	// keys of clients. The default discards them.
	Log *slog.Logger
	// OnReload is called after the first read, each reload and each refusal. It
	// must not call Reload. Optional.
	OnReload func(at time.Time, err error)
}

// A Source is a policy whose rules come from a file, which may change.
type Source struct {
	path     string // "" if there is no file
	o        Options
	settings Settings
	policy   atomic.Pointer[policy.Policy]
	empty    atomic.Bool // nothing can be decided: its source holds no rules yet

	mu      sync.Mutex // one reload at a time; it guards what follows
	file    *File      // in force
	refused *refusal   // the last attempt; nil if it was taken

	follower *Follower // nil if the rules come from a file
	name     string    // of the follower's source, for the log
}

// A refusal is content that was not taken, and why.
type refusal struct {
	hash string // "" if the file could not be read
	err  error
}

// Open binds the rules of a file that has just been read from a path to a store; its
// settings may have said which. Without a path there is no file behind: Reload does
// nothing, and Watch waits for its context's end.
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

// refuse returns why rules that are good may not be used here.
func (o *Options) refuse(f *File) error {
	if errs := f.Rules.File().Refused(o.By); o.By != 0 && len(errs) > 0 {
		return errs
	}
	return nil
}

// Policy returns the policy of the moment. It stays good for the request that
// it was taken for.
func (s *Source) Policy() *policy.Policy { return s.policy.Load() }

// File returns what is in force, as it was read.
func (s *Source) File() *File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

// Settings returns what the file said beside its rules when it was opened:
// another value takes effect by a restart.
func (s *Source) Settings() Settings { return s.settings }

// Ready returns nil: a source has had good rules since it was opened, and a
// reload that fails leaves them. But one that follows a database may hold no
// rules yet; nothing can be decided then. It is for readiness checks.
func (s *Source) Ready() error {
	if !s.empty.Load() {
		return nil
	}
	_, problem := s.Held()
	return errors.New(problem)
}

// Reload reads the file again and takes what it says, all of it or nothing.
// When it fails, the rules in force stay. The error says what is wrong in the
// file, or which limit the store cannot hold.
func (s *Source) Reload() error { return s.reload(true) }

// reload takes the file. Content that is in force, or was refused before, is
// passed over unless asked for.
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

// refuse keeps what is in force, and logs why, once.
func (s *Source) refuse(hash string, err error) error {
	if was := s.refused; was == nil || was.hash != hash || was.err.Error() != err.Error() {
		s.o.Log.Error("rules: not reloaded, the rules before stay in force", "file", cmp.Or(s.path, s.name), "err", err)
		s.notify(err)
	} else if hash != "" { // asked for once more; a file that is missing is looked for all the time
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

// maxLogged is how many warnings or changes are logged at once.
const maxLogged = 20

// warn logs what is likely not meant, and settings that wait for a restart.
func (s *Source) warn(f *File) {
	for i, w := range f.Warnings {
		if i == maxLogged {
			s.o.Log.Warn("rules: more warnings, stint validate has them", "file", cmp.Or(s.path, s.name), "count", len(f.Warnings)-i)
			break
		}
		s.o.Log.Warn("rules: "+w.Reason, "file", cmp.Or(s.path, s.name), "line", w.Line, "column", w.Column, "rule", w.Rule, "hint", w.Hint)
	}
	if names := f.Rules.File().InFlight(""); s.o.By&request.Serve != 0 && len(names) > 0 {
		s.o.Log.Warn("rules: /v1/reserve and STINT.RESERVE hold requests to limits in flight; all else here refuses what they match, since it does not learn when a request ends",
			"file", cmp.Or(s.path, s.name), "rules", strings.Join(names[:min(len(names), maxLogged)], ", "))
	}
	if names := s.settings.differ(f.Settings); len(names) > 0 {
		s.o.Log.Warn("rules: settings take effect by a restart", "file", cmp.Or(s.path, s.name), "settings", strings.Join(names, ", "))
	}
}

// differ returns the names of the settings that are not the same.
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
	// quiet is how long nothing may happen before a file is read: editors and
	// copies write in several steps.
	quiet = 100 * time.Millisecond
	// patience bounds how long steps that do not end put a reload off.
	patience = 2 * time.Second
	// again is how often a directory that is gone is looked for.
	again = time.Second
)

// Watch reloads the rules when the file changes, until ctx ends, and then
// returns nil. It watches the file's directory, and that of the file it is a
// link to, so that a file which is renamed, replaced, or linked anew, as
// Kubernetes does it, is seen. Where the file system tells of no changes, as
// over a network, call Reload. The error says why watching cannot begin.
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
	var first time.Time // event since the last reload; zero if none
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
			_ = s.reload(false) // reports to the log and OnReload
			first = time.Time{}
			continue
		}
		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(quiet, max(0, patience-time.Since(first))))
	}
}

// concerns reports whether the file may have changed. What is written to other
// files of the directory, such as logs, does not matter; whatever comes, goes
// or is renamed may be a link on the way to the file.
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

// attend watches the directories that matter now, and no others. It reports
// false if one is not there.
func (s *Source) attend(w *fsnotify.Watcher) bool {
	dirs := []string{filepath.Dir(s.path)}
	target, err := filepath.EvalSymlinks(s.path)
	if err == nil && filepath.Dir(target) != dirs[0] {
		dirs = append(dirs, filepath.Dir(target))
	}
	for _, dir := range w.WatchList() {
		if !slices.Contains(dirs, dir) {
			_ = w.Remove(dir) // which fails if the directory is gone
		}
	}
	ok := true
	for _, dir := range dirs {
		ok = w.Add(dir) == nil && ok
	}
	return ok
}
