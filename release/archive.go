package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A file is one of those beside the binary, by its place in the archive.
type file struct {
	path string
	text []byte
	mode int64
}

// contents returns what goes with a binary: licences, manual pages, completion
// and the unit.
func (r *release) contents(ctx context.Context, dir, binary string, notices []byte) ([]file, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	files := []file{{filepath.Base(binary), program, 0o755}, {"THIRD-PARTY-NOTICES.txt", notices, 0o644}}
	for _, one := range []struct{ from, to string }{
		{"LICENSE", "LICENSE"}, {"README.md", "README.md"}, {"CHANGELOG.md", "CHANGELOG.md"}, {"SECURITY.md", "SECURITY.md"},
		{"release/systemd/stint.service", "systemd/stint.service"}, {"release/systemd/stint.yaml", "systemd/stint.yaml"},
	} {
		text, err := os.ReadFile(filepath.Join(r.root, one.from))
		if err != nil {
			return nil, err
		}
		files = append(files, file{one.to, text, 0o644})
	}
	// The pages and the scripts are the same for every system: the one at hand
	// writes them.
	self := filepath.Join(dir, "self")
	if err := r.build(ctx, target{runtime.GOOS, runtime.GOARCH}, self); err != nil {
		return nil, err
	}
	pages := filepath.Join(dir, "man")
	if _, err := command(ctx, dir, nil, self, "man", pages); err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(pages, "*.1"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"man/" + filepath.Base(name), text, 0o644})
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := command(ctx, dir, nil, self, "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"completion/stint." + shell, []byte(text + "\n"), 0o644})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files, nil
}

// archive writes files under one directory, with the time of the commit.
func (r *release) archive(path, under string, files []file) error {
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	defer to.Close() // closed below where it matters
	zip := gzip.NewWriter(to)
	w := tar.NewWriter(zip)
	for _, f := range files {
		head := &tar.Header{Name: under + "/" + f.path, Mode: f.mode, Size: int64(len(f.text)), ModTime: r.at, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(head); err != nil {
			return err
		}
		if _, err := w.Write(f.text); err != nil {
			return err
		}
	}
	for _, close := range []func() error{w.Close, zip.Close, to.Close} {
		if err := close(); err != nil {
			return err
		}
	}
	return nil
}

// sums writes the sums of all that is there, as sha256sum -c reads them.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries {
		if e.IsDir() || e.Name() == "SHA256SUMS" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(text), e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
