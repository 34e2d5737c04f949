package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the form of the package
	"github.com/goreleaser/nfpm/v2/files"
)

// The places of files in a Debian system, by what their path in the archive
// begins with.
var debPlaces = []struct {
	prefix, to string
	config     bool
}{
	{"man/", "/usr/share/man/man1/", false},
	{"completion/stint.bash", "/usr/share/bash-completion/completions/stint", false},
	{"completion/stint.zsh", "/usr/share/zsh/vendor-completions/_stint", false},
	{"completion/stint.fish", "/usr/share/fish/vendor_completions.d/stint.fish", false},
	{"systemd/stint.service", "/usr/lib/systemd/system/stint.service", false},
	{"systemd/stint.yaml", "/etc/stint/stint.yaml", true},
	{"LICENSE", "/usr/share/doc/stint/copyright", false},
	{"", "/usr/share/doc/stint/", false},
}

// place returns where a file goes.
func place(path string) (to string, config bool) {
	if path == "stint" {
		return "/usr/bin/stint", false
	}
	for _, p := range debPlaces {
		if rest, ok := strings.CutPrefix(path, p.prefix); ok {
			if strings.HasSuffix(p.to, "/") {
				return p.to + rest, p.config
			}
			return p.to, p.config
		}
	}
	return "", false
}

// deb writes the Debian package. It enables nothing by itself: systemctl enable
// --now stint does.
func (r *release) deb(path string, t target, all []file) error {
	dir, err := os.MkdirTemp("", "stint-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "stint", Arch: t.arch, Platform: "linux", Version: r.version, Section: "net", Priority: "optional",
		Maintainer: "The stint authors <noreply@stint.invalid>", Homepage: "https://" + stint, License: "Apache-2.0",
		Description: "exact rate limiter\nA reverse proxy and a service that hold clients to limits, over HTTP,\nEnvoy's protocol and the protocol of Redis.",
		MTime:       r.at,
	})
	info.Deb.Compression = "gzip" // which every Debian reads, and Go writes fast
	for _, f := range all {
		to, config := place(f.path)
		text := f.text
		if strings.HasPrefix(f.path, "man/") {
			var zipped bytes.Buffer
			w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
			if err != nil {
				return err
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			text, to = zipped.Bytes(), to+".gz"
		}
		from := filepath.Join(dir, strings.ReplaceAll(f.path, "/", "_"))
		if err := os.WriteFile(from, text, 0o644); err != nil {
			return err
		}
		one := &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: os.FileMode(f.mode), MTime: r.at, Owner: "root", Group: "root"}}
		if config {
			one.Type = files.TypeConfigNoReplace
		}
		info.Contents = append(info.Contents, one)
	}
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := packager.Package(info, to); err != nil {
		_ = to.Close() // the other error says more
		return err
	}
	return to.Close()
}
