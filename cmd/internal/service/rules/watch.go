package rules

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

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
			s.reload(false) // reports to the log and OnReload
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
			w.Remove(dir) // which fails if the directory is gone
		}
	}
	ok := true
	for _, dir := range dirs {
		ok = w.Add(dir) == nil && ok
	}
	return ok
}
