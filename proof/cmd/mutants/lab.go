package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// copied is what of the root module goes into the lab, beside its own sources
// and the module proof.
var copied = []string{"memstore", "simulate", "storetest", "proof"}

// stages are the tests that a bug has to survive, those that are quick and see
// most first.
var stages = []struct {
	dir  string
	args []string
}{
	{"proof", []string{".", "-short", "-rapid.checks=400"}},
	{".", []string{".", "./memstore", "./simulate", "-short"}},
	{".", []string{"./storetest", "-short"}},
	{"proof", []string{".", "-run", "TestDifferential", "-rapid.checks=20000"}},
}

// workspace makes the two modules of the lab one.
const workspace = `go 1.26

use (
	./
	./proof
)

replace github.com/stint-dev/stint v0.1.0 => ./
`

// A lab is a copy of the sources in which bugs are planted.
type lab struct {
	dir   string
	limit time.Duration
}

func newLab(root string, limit time.Duration) (*lab, error) {
	dir, err := os.MkdirTemp("", "stint-mutants-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir, limit}
	if err := l.fill(root); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) close() { os.RemoveAll(l.dir) }

// fill copies the sources.
func (l *lab) fill(root string) error {
	own, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range own {
		switch name := entry.Name(); {
		case entry.IsDir():
		case strings.HasSuffix(name, "docs_test.go"): // reads the documentation
		case strings.HasSuffix(name, ".go"), strings.HasPrefix(name, "go."):
			if err := copyFile(root, l.dir, name); err != nil {
				return err
			}
		}
	}
	for _, name := range copied {
		if err := os.CopyFS(filepath.Join(l.dir, name), os.DirFS(filepath.Join(root, name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.WriteFile(filepath.Join(l.dir, "go.work"), []byte(workspace), 0o644)
}

func copyFile(from, to, name string) error {
	text, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, name), text, 0o644)
}

// plant applies a bug, tests, and takes the bug out again.
func (l *lab) plant(b bug) (v verdict, err error) {
	patch, err := filepath.Abs(b.path)
	if err != nil {
		return v, err
	}
	ctx := context.Background()
	if out, err := l.command(ctx, ".", "git", "apply", "-p1", patch); err != nil {
		return v, fmt.Errorf("the patch no longer applies: %s", out)
	}
	defer func() {
		if out, undo := l.command(ctx, ".", "git", "apply", "-p1", "-R", patch); undo != nil {
			err = fmt.Errorf("the patch cannot be taken out: %s", out)
		}
	}()
	if out, err := l.command(ctx, ".", "go", "build", ".", "./memstore"); err != nil {
		return v, fmt.Errorf("does not compile: %s", out)
	}
	return l.test(ctx)
}

// A verdict says whether a test failed, and which.
type verdict struct {
	failed bool
	killer string
	output string
}

// test runs the stages until one fails.
func (l *lab) test(ctx context.Context) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	for _, stage := range stages {
		out, err := l.command(ctx, stage.dir, "go", append([]string{"test", "-count=1", "-failfast"}, stage.args...)...)
		if err == nil {
			continue
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return verdict{}, err
		}
		v := verdict{failed: true, killer: killer(out), output: out}
		if ctx.Err() != nil {
			v.killer = "hangs"
		}
		if v.killer == "" {
			return v, fmt.Errorf("%s: the tests do not run: %s", stage.dir, out)
		}
		return v, nil
	}
	return verdict{}, nil
}

// command runs a program in a directory of the lab, which is no repository: git
// must not look for one above it.
func (l *lab) command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(l.dir, dir)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(l.dir), "STINT_MUTANT=1", "GOFLAGS=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	return out.String(), err
}

var (
	failedTest  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	running     = regexp.MustCompile(`running tests:\n\s+(\S+)`)
	panicked    = regexp.MustCompile(`(?m)^(?:panic|fatal error): (.*)$`)
	failPackage = regexp.MustCompile(`(?m)^FAIL\s+github\.com/stint-dev/stint/?(\S*)`)
)

// killer returns the name of the test that failed, with its package.
func killer(out string) string {
	where := "stint"
	if m := failPackage.FindStringSubmatch(out); m != nil && m[1] != "" {
		where = m[1]
	}
	for _, re := range []*regexp.Regexp{failedTest, running} {
		if all := re.FindAllStringSubmatch(out, -1); len(all) > 0 {
			name := all[0][1]
			if len(all) > 1 && strings.HasPrefix(all[1][1], name+"/") {
				name = all[1][1]
			}
			return where + " " + name
		}
	}
	if m := panicked.FindStringSubmatch(out); m != nil {
		return where + ": panic: " + m[1]
	}
	return ""
}
