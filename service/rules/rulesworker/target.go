package rulesworker

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulescopy"
	"github.com/stint-dev/stint/service/rules/rulesredis"
)

// A Target is where rules are published.
type Target interface {
	String() string
	// Newest returns the version that the target holds, the zero Version for none.
	Newest(ctx context.Context) (rulesource.Version, error)
	// New begins a version that follows the one that the target holds.
	New(ctx context.Context) (Publication, error)
	Close() error
}

// A Publication is a version that is being written. It is published as a whole or not at all.
type Publication interface {
	rulesource.Receiver
	// Newest returns the version that this one is to follow.
	Newest() rulesource.Version
	// Held returns the version since which the caller must pass changes.
	Held() rulesource.Version
	// ForceFull makes it publish everything instead of changes.
	ForceFull()
	// Publish makes it the newest version. The error is [rulesredis.ErrSucceeded] if another worker
	// was faster.
	Publish() error
	// Drop discards what was not published.
	Drop()
}

// Redis returns the target of a server.
func Redis(s *rulesredis.Server) Target { return redis{s} }

type redis struct{ *rulesredis.Server }

func (r redis) New(ctx context.Context) (Publication, error) { return r.NewPublishing(ctx) }

// copyName is the name of the file that nodes read in a directory.
const copyName = "rules.copy"

// Published returns the source of a directory to which a worker publishes.
func Published(path string) rulesource.Source {
	return rulescopy.NewFile(filepath.Join(path, copyName))
}

// Directory returns the target of a directory. It holds the file that nodes read, and the document
// of the rules in a file of its own name, for people and for --config. The directory is created if
// it does not exist.
func Directory(path string) Target {
	return &directory{path, rulescopy.NewFile(filepath.Join(path, copyName))}
}

type directory struct {
	path string
	file *rulescopy.File
}

func (d *directory) String() string { return d.path }

func (d *directory) Close() error { return nil }

func (d *directory) Newest(context.Context) (rulesource.Version, error) {
	last, _ := d.file.Last()
	return last.Version, nil
}

func (d *directory) New(ctx context.Context) (Publication, error) {
	v, err := d.Newest(ctx)
	if err != nil {
		return nil, err
	}
	p := &published{d: d, newest: v, held: v}
	if d.file.Stale() {
		p.ForceFull()
	}
	return p, nil
}

// A published is a version that is being written to a directory.
type published struct {
	d            *directory
	newest, held rulesource.Version
	s            *rulesource.Snapshot
	w            *rulescopy.Writing
}

func (p *published) Newest() rulesource.Version { return p.newest }
func (p *published) Held() rulesource.Version   { return p.held }
func (p *published) ForceFull()                 { p.held = p.held.ForFullLoad() }

func (p *published) Begin(s *rulesource.Snapshot, whole bool) error {
	p.s, p.w = s, p.d.file.Begin(s, whole, p.held)
	if p.w == nil {
		return errors.New(p.d.file.String() + " lacks changes: it is written anew in a while")
	}
	return nil
}

func (p *published) Override(o *rulesource.Override) error { p.w.Override(o); return nil }
func (p *published) Plan(o *rulesource.Plan) error         { p.w.Plan(o); return nil }
func (p *published) Drop()                                 { p.w.Drop() }

func (p *published) Publish() error {
	if err := p.w.Keep(); err != nil {
		return err
	}
	if p.s.Document == nil {
		return nil
	}
	return replace(filepath.Join(p.d.path, filepath.Base(p.s.Name)), p.s.Document)
}

// replace writes a file under another name and then renames it, so that it is always whole.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // without effect after the rename
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	rulescopy.RemoveLeft(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new"))
	return os.Rename(f.Name(), path)
}
