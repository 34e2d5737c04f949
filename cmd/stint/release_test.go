package main_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/pages"
)

// TestUnit lets systemd judge the unit: below 2 of 10. What operators do is kept in
// the one directory that it may write.
func TestUnit(t *testing.T) {
	const unit = "release/systemd/stint.service"
	text := pages.Read(t, unit)
	for _, want := range []string{"\nStateDirectory=stint\n", "\nEnvironment=STINT_STATE=%S/stint/"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the unit", want)
		}
	}
	tool, found := need.Find("systemd-analyze")
	if !found {
		need.Optional(t, "systemd-analyze")
	}
	out, err := exec.Command(tool, "security", "--offline=true", "--no-pager", filepath.Join(root, unit)).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m := regexp.MustCompile(`exposure level for stint\.service: ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%s", out)
	}
	if level, err := strconv.ParseFloat(string(m[1]), 64); err != nil || level >= 2 {
		t.Errorf("exposure %s, want below 2\n%s", m[1], out)
	}
}

// TestModules looks that each module of the library requires the root module: here
// go.work finds it, and who gets that module alone would not.
func TestModules(t *testing.T) {
	for _, module := range []string{"adapters", "adapters/caddylimit", "grpclimit", "redisstore", "rulesdb"} {
		if !strings.Contains(pages.Read(t, module+"/go.mod"), "github.com/stint-dev/stint v0.1.0\n") {
			t.Errorf("%s/go.mod does not require the root module", module)
		}
	}
}

// TestVersions holds the binary of a release, which is built in the workspace, to the
// modules that go install of the same version takes: those that cmd/go.mod requires.
func TestVersions(t *testing.T) {
	text, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	required := make(map[string]string)
	for _, r := range decode[struct {
		Require []struct{ Path, Version string }
	}](t, string(text)).Require {
		required[r.Path] = r.Version
	}
	text, err = exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if version != "" && required[path] != version {
			t.Errorf("the binary has %s %s, and cmd/go.mod requires %q: raise it there, then make tidy", path, version, required[path])
			required[path] = version // each once
		}
	}
}
