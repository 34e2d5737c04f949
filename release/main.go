// Command release builds what a release of stint has, from the tree it runs in:
// a binary for each system, with licences, manual pages and completion beside it,
// a Debian package, an image, a bill of materials, and the sums of all of them.
//
//	go run ./release --out dist
//
// The same commit and the same Go give the same bytes, wherever it runs.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// targets are the systems that a release is for.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

type target struct{ os, arch string }

func (t target) String() string { return t.os + "_" + t.arch }

// A release is one run: where the tree is, where its files go, and what they say.
type release struct {
	root, out string
	version   string    // without the v
	at        time.Time // of the commit: the time of every file
	env       []string  // of builds, beside GOOS and GOARCH

	made    []descriptor                 // the files
	modules map[string]map[string]string // that are in them: digests by purl
}

func main() {
	out := flag.String("out", "dist", "where the files go")
	version := flag.String("version", "", "the version, such as v0.1.0; without it, what git describe says")
	only := flag.String("only", "", "one system, such as linux_amd64; without it, all")
	size := flag.String("size", "", "say what takes the room in this binary, which must not be stripped, and build nothing")
	tagged := flag.String("tag", "", "give every module tags for this version, such as v0.1.0, say how to push them, and build nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	do := func() error { return run(ctx, *out, *version, *only) }
	switch {
	case *tagged != "":
		do = func() error { return tag(ctx, os.Stdout, ".", *tagged) }
	case *size != "":
		do = func() error { return sizes(ctx, os.Stdout, *size) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, version, only string) error {
	r, err := open(ctx, out, version)
	if err != nil {
		return err
	}
	var built []string
	for _, t := range targets {
		if only != "" && only != t.String() {
			continue
		}
		if err := r.target(ctx, t); err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		built = append(built, t.String())
	}
	if built == nil {
		return fmt.Errorf("--only %s: there is %v", only, targets)
	}
	if err := r.provenance(ctx, built); err != nil {
		return err
	}
	return r.sums()
}

// open finds the tree, its version and the time of its commit.
func open(ctx context.Context, out, version string) (*release, error) {
	root, err := command(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	r := &release{root: root, out: out, version: version, env: []string{"CGO_ENABLED=0"}, modules: make(map[string]map[string]string)}
	if version == "" {
		if r.version, err = command(ctx, root, nil, "git", "describe", "--tags", "--always", "--match", "v*"); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(r.version, "v") {
			r.version = "v0.0.0-" + r.version // no tag yet
		}
	}
	r.version = strings.TrimPrefix(r.version, "v")
	at, err := command(ctx, root, nil, "git", "log", "-1", "--format=%cI")
	if err != nil {
		return nil, err
	}
	if r.at, err = time.Parse(time.RFC3339, at); err != nil {
		return nil, err
	}
	r.at = r.at.UTC()
	return r, os.MkdirAll(out, 0o755)
}

// target builds everything for one system.
func (r *release) target(ctx context.Context, t target) error {
	dir, err := os.MkdirTemp("", "stint-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "stint")
	if t.os == "windows" {
		binary += ".exe"
	}
	if err := r.build(ctx, t, binary); err != nil {
		return err
	}
	modules, err := readModules(ctx, r.root, binary)
	if err != nil {
		return err
	}
	for _, m := range modules {
		if r.modules[m.purl()], err = m.digest(); err != nil {
			return err
		}
	}
	notices, err := notices(modules)
	if err != nil {
		return err
	}
	if err := r.write(r.name(t)+".spdx.json", func(path string) error { return r.bill(path, t, binary, modules) }); err != nil {
		return err
	}
	files, err := r.contents(ctx, dir, binary, notices)
	if err != nil {
		return err
	}
	if err := r.write(r.name(t)+".tar.gz", func(path string) error { return r.archive(path, r.name(t), files) }); err != nil {
		return err
	}
	if t.os != "linux" {
		return nil
	}
	if err := r.write(fmt.Sprintf("stint_%s_%s.deb", r.version, t.arch), func(path string) error { return r.deb(path, t, files) }); err != nil {
		return err
	}
	return r.write(r.name(t)+".image.tar", func(path string) error { return r.image(path, t, binary) })
}

func (r *release) name(t target) string { return "stint_" + r.version + "_" + t.String() }

func (r *release) write(name string, make func(path string) error) error {
	path := filepath.Join(r.out, name)
	if err := make(path); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	text, err := os.ReadFile(path)
	if err == nil {
		r.made = append(r.made, descriptor{Name: name, Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(text))}})
		fmt.Printf("%-44s %6.1f MB\n", name, float64(len(text))/1e6)
	}
	return err
}

// seldom are packages whose functions are called seldom, and so are not copied to where
// they are called: SELDOM in the Makefile has the same.
var seldom = []string{
	"github.com/jackc/...", "github.com/go-sql-driver/...", "go.yaml.in/...", "github.com/prometheus/...", own + "/cmd/stint",
	own + "/rulesdb/...", service + "rulesapi/...", service + "ruleshttp/...", "github.com/yuin/...", "golang.org/x/text/...", "github.com/klauspost/...",
	service + "envoyrules", service + "nginxrules", service + "storecheck", service + "ruletest", service + "rehearse",
	service + "rulesworker", service + "rulesredis", service + "rulescopy", service + "operate", service + "statefile", service + "otlp", service + "rules", service + "snapshot", service + "page", service + "warn",
	own + "/policy/rulesfile", own + "/cmd/internal/commandline", own + "/cmd/internal/planner/lab", own + "/cmd/internal/planner/sizing", own + "/cmd/internal/linediff",
	own + "/cmd/internal/planner/nodes", own + "/cmd/internal/planner/trial",
	"google.golang.org/protobuf/encoding/prototext", "google.golang.org/protobuf/encoding/protojson", "google.golang.org/protobuf/reflect/protodesc", "google.golang.org/protobuf/internal/encoding/...",
}

const (
	own     = "github.com/stint-dev/stint"
	service = own + "/cmd/internal/service/"
)

// build compiles the command, without paths of this machine in it.
func (r *release) build(ctx context.Context, t target, to string) error {
	args := []string{"build", "-trimpath", "-tags=grpcnotrace"}
	for _, p := range seldom {
		args = append(args, "-gcflags="+p+"=-l")
	}
	args = append(args, "-ldflags=-s -w -buildid= -X main.released=v"+r.version, "-o", to, "./stint")
	_, err := command(ctx, filepath.Join(r.root, "cmd"), append([]string{"GOOS=" + t.os, "GOARCH=" + t.arch}, r.env...), "go", args...)
	return err
}

// command runs a program and returns what it prints.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, e.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
