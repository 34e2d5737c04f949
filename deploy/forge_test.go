package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWorkflows holds each workflow to least rights, a bound of time, and actions of
// a commit that nobody can move.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	pinned := regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\n`)
	for _, name := range files {
		var workflow struct {
			Permissions map[string]string
			Concurrency struct{ Group string }
			Jobs        map[string]struct {
				TimeoutMinutes int `json:"timeout-minutes"`
				Steps          []struct{ Uses, Run string }
			}
		}
		text := parse(t, name, &workflow)
		if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" || workflow.Concurrency.Group == "" {
			t.Errorf("%s: permissions %v, concurrency %v", name, workflow.Permissions, workflow.Concurrency)
		}
		for job, j := range workflow.Jobs {
			if j.TimeoutMinutes == 0 || len(j.Steps) < 3 {
				t.Errorf("%s: job %s has %d steps and %d minutes", name, job, len(j.Steps), j.TimeoutMinutes)
			}
		}
		if n, of := len(pinned.FindAllString(text, -1)), strings.Count(text, "uses:"); n != of || n == 0 {
			t.Errorf("%s: %d of %d actions are named by commit and version", name, n, of)
		}
	}
	forms, _ := filepath.Glob("../.github/ISSUE_TEMPLATE/*.yml")
	for _, name := range forms {
		var any map[string]any
		parse(t, name, &any)
	}
}

// TestDependabot looks that every module that requires anything is looked after.
func TestDependabot(t *testing.T) {
	var config struct {
		Updates []struct{ Directories []string }
	}
	parse(t, "../.github/dependabot.yml", &config)
	var modules []string
	for _, pattern := range []string{"../*/go.sum", "../*/*/go.sum"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			modules = append(modules, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), ".."))
		}
	}
	slices.Sort(modules)
	if len(config.Updates) == 0 || !slices.Equal(config.Updates[0].Directories, modules) {
		t.Errorf("dependabot.yml has %+v, the modules are %q", config, modules)
	}
}

// parse reads a YAML file into a value, and returns its text.
func parse(t *testing.T, name string, into any) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(text)
}
