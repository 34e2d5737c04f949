package main_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/release"
)

// A newcomer is somebody else's machine, to which github.com/stint-dev/stint is a
// repository of the tree at hand with the tags of a release. Its module cache is empty;
// other modules come from the one here, or else by GOPROXY.
type newcomer struct {
	t   *testing.T
	dir string
	env []string
}

// run runs a program and returns what it prints.
func (n *newcomer) run(name string, args ...string) (string, error) {
	n.t.Helper()
	c := exec.CommandContext(n.t.Context(), name, args...)
	c.Dir, c.Env = n.dir, append(os.Environ(), n.env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (n *newcomer) must(name string, args ...string) string {
	n.t.Helper()
	out, err := n.run(name, args...)
	if err != nil {
		n.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// publish makes a repository of the tree at hand, tags it as a maintainer does, and
// returns somebody to whom it is github.com/stint-dev/stint.
func publish(t *testing.T, version string) *newcomer {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	origin, clone := filepath.Join(dir, "origin.git"), filepath.Join(dir, "clone")
	n := &newcomer{t: t, dir: dir, env: []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null"}}
	n.must("git", "init", "--quiet", "--bare", "--initial-branch=main", origin)
	at := []string{"--git-dir=" + origin, "--work-tree=" + root, "-c", "core.bare=false", "-c", "user.name=test", "-c", "user.email=test@stint.invalid"}
	n.must("git", append(slices.Clone(at), "add", "--all", root)...)
	n.must("git", append(slices.Clone(at), "commit", "--quiet", "--message=release")...)
	n.must("git", "clone", "--quiet", origin, clone)
	if err := main.Tag(t.Context(), nil, clone, "v9.0.0"); err == nil || !strings.Contains(err.Error(), "write v9.0.0 into its go.mod") {
		t.Errorf("tagged what requires another version: %v", err)
	}
	var push bytes.Buffer
	if err := main.Tag(t.Context(), &push, clone, version); err != nil {
		t.Fatal(err)
	}
	n.must("git", append([]string{"-C", clone}, strings.Fields(push.String())[1:]...)...)
	if err := main.Tag(t.Context(), &push, clone, version); err == nil || !strings.Contains(err.Error(), "there are tags already:\nadapters/caddylimit/"+version) {
		t.Errorf("tagged twice: %v", err)
	}
	cache := strings.TrimSpace(n.must("go", "env", "GOMODCACHE"))
	proxy := strings.TrimSpace(n.must("go", "env", "GOPROXY"))
	n.env = append(n.env, "GOWORK=off", "GOBIN="+filepath.Join(dir, "bin"), "GOMODCACHE="+filepath.Join(dir, "mod"),
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath -tags=grpcnotrace -modcacherw", // as in make test, so that what it has compiled serves here too
		"GOPROXY=file://"+filepath.ToSlash(cache)+"/cache/download,"+proxy, "GOSUMDB=off", "GOPRIVATE=github.com/stint-dev",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+origin+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/stint-dev/stint")
	return n
}

// TestInstall installs the command by its version, and adds the libraries to a program,
// from a repository with the tags of a release.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	n := publish(t, "v0.1.0")
	n.must("go", "install", "github.com/stint-dev/stint/cmd/stint@latest")
	if out := n.must(filepath.Join(n.dir, "bin", "stint"), "--version"); !strings.HasPrefix(out, "stint v0.1.0") {
		t.Errorf("installed is %s", out)
	}
	n.dir = t.TempDir()
	program := "package main\n\nimport (\n"
	get := []string{"get"}
	for _, module := range main.Published {
		switch {
		case module == "cmd":
		case strings.HasSuffix(module, "/caddylimit"): // xcaddy gets it; all of Caddy comes with it
			n.must("go", "mod", "download", "github.com/stint-dev/stint/"+module+"@latest")
		default:
			path := strings.TrimSuffix("github.com/stint-dev/stint/"+module, "/.")
			program += "\t_ \"" + path + "\"\n"
			get = append(get, path+"@latest")
		}
	}
	if err := os.WriteFile(filepath.Join(n.dir, "main.go"), []byte(program+")\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.must("go", "mod", "init", "example.com/program")
	n.must("go", get...)
	if out := n.must("go", "list", "-deps", "."); strings.Count(out, "github.com/stint-dev/stint/") < len(get) {
		t.Errorf("the program is made of\n%s", out)
	}
}

// TestTag makes no tags where a module is not ready, and knows all modules.
func TestTag(t *testing.T) {
	if err := main.Tag(t.Context(), nil, "..", "1.0"); err == nil || !strings.Contains(err.Error(), "want a version such as v0.1.0") {
		t.Error(err)
	}
	// of this repository alone
	own := regexp.MustCompile(`^(adapters/(routers|generated)|benchmarks(/.*)?|deploy/.*|proof|release|site)$`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == ".git"):
			return fs.SkipDir
		case d.Name() != "go.mod":
			return nil
		}
		dir, err := filepath.Rel("..", filepath.Dir(path))
		if dir = filepath.ToSlash(dir); slices.Contains(main.Published, dir) == own.MatchString(dir) {
			t.Errorf("module %s: published, or of this repository alone?", dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
