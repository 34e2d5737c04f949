package rules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// maxBytes is the most that a file may hold: package rulesfile's bound.
const maxBytes = 32 << 20

// A File is a rules file that has been read and found good.
type File struct {
	// Rules are the rules.
	Rules *policy.Rules
	// Settings are what the file says beside them.
	Settings Settings
	// Warnings are what is allowed and likely not meant.
	Warnings []rulesfile.Warning
	// Name is what errors call the file, Document its text.
	Name     string
	Document []byte

	sum [sha256.Size]byte // of the bytes read
}

// Hash is the SHA-256 of the text, in hexadecimal.
func (f *File) Hash() string {
	sum := sumOf(f.Document)
	return hex.EncodeToString(sum[:])
}

// An Error says what is wrong in which file. It wraps [rulesfile.Errors], or the
// operating system's error when the file cannot be had.
type Error struct {
	Name string // of the file
	Err  error
}

// Error returns a line for each thing that is wrong, with file, line and column
// in front.
func (e *Error) Error() string {
	errs, ok := errors.AsType[rulesfile.Errors](e.Err)
	if !ok {
		return e.Name + ": " + e.Err.Error()
	}
	lines := make([]string, len(errs))
	for i, one := range errs {
		sep := ":"
		if one.Line == 0 {
			sep = ": "
		}
		lines[i] = e.Name + sep + one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// fault returns the error of a file as a whole.
func fault(format string, args ...any) error {
	return rulesfile.Errors{{Reason: fmt.Sprintf(format, args...)}}
}

// Read reads a rules file. The error is an *[Error].
func Read(path string) (*File, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, &Error{path, err}
	}
	return Decode(path, data)
}

// readFile reads a regular file of at most maxBytes. It opens nothing else: a
// pipe would wait for its writer, and a device may do anything.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plain(err)
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	// Should a pipe have taken its place meanwhile, O_NONBLOCK does not wait.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, plain(err)
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	return ReadAll(f)
}

// ReadAll reads what may be a rules file from a stream, and fails once it is
// too large for one.
func ReadAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, plain(err)
	}
	if len(data) > maxBytes {
		return nil, fault("more than %d bytes: a rules file has at most 32 MiB", maxBytes)
	}
	return data, nil
}

func regular(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fault("a directory; name the file in it")
	case !info.Mode().IsRegular():
		return fault("not a regular file; standard input is read as -, by stint validate")
	case info.Size() > maxBytes:
		return fault("%d bytes: a rules file has at most 32 MiB", info.Size())
	}
	return nil
}

// plain takes the path from an error of the operating system, since [Error]
// names the file.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Decode reads the bytes of a rules file. They are JSON if the name ends in
// .json, YAML if it ends in .yaml or .yml, else JSON if they begin as JSON does.
// The error is an *[Error] of [rulesfile.Errors].
func Decode(name string, data []byte) (*File, error) {
	f := &File{Name: name, Document: data, sum: sumOf(data)}
	if len(data) > maxBytes {
		return nil, &Error{name, fault("%d bytes: a rules file has at most 32 MiB", len(data))}
	}
	root, err := ReadTree(name, data)
	if err != nil {
		return nil, &Error{name, err}
	}
	var errs rulesfile.Errors
	f.Settings, f.Warnings, errs = settings(root)
	file, err := rulesfile.Decode(root, settingNames...)
	if err != nil {
		more, _ := errors.AsType[rulesfile.Errors](err)
		errs = append(errs, more...)
	}
	if len(errs) > 0 {
		slices.SortStableFunc(errs, before)
		return nil, &Error{name, errs}
	}
	f.Rules = policy.Compile(file)
	f.Warnings = append(f.Warnings, file.Warnings()...)
	return f, nil
}

func before(a, b *rulesfile.Error) int {
	if a.Line != b.Line {
		return a.Line - b.Line
	}
	return a.Column - b.Column
}

// isJSON reports whether a file is JSON and not YAML.
func isJSON(name string, data []byte) bool {
	switch dot := strings.LastIndexByte(name, '.'); {
	case dot < 0:
	case strings.EqualFold(name[dot:], ".json"):
		return true
	case strings.EqualFold(name[dot:], ".yaml"), strings.EqualFold(name[dot:], ".yml"):
		return false
	}
	const blanks = " \t\r\n"
	rest, open := strings.CutPrefix(strings.TrimLeft(string(data[:min(len(data), 4096)]), blanks), "{")
	rest = strings.TrimLeft(rest, blanks)
	return open && (strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, "}"))
}

// sumOf identifies the contents of a file.
func sumOf(data []byte) [sha256.Size]byte { return sha256.Sum256(data) }

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
