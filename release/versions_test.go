package main_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// TestVersions holds the binary of a release, which is built in the workspace, to the
// modules that go install of the same version takes: those that cmd/go.mod requires.
func TestVersions(t *testing.T) {
	text, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../cmd/go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	required := make(map[string]string)
	for _, r := range file.Require {
		required[r.Path] = r.Version
	}
	text, err = exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", "../cmd/stint").Output()
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
