// Package compose_test reads the compose file of release/container with compose's
// own loader. It is a module apart from go.work, as deploy/helm is.
package compose_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const file = "../../release/container/compose.yaml"

func load(t *testing.T, path string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{path}, cli.WithName("stint"))
	if err != nil {
		t.Fatal(err)
	}
	return o.LoadProject(t.Context())
}

// TestCompose holds the file to compose's schema, and its services to what the
// image allows: no privileges, no file system to write, files that are there.
func TestCompose(t *testing.T) {
	project, err := load(t, file)
	if err != nil {
		t.Fatal(err)
	}
	if names := project.ServiceNames(); !slices.Equal(names, []string{"app", "board", "redis", "stint"}) {
		t.Errorf("services %v", names)
	}
	for name, service := range project.Services {
		if service.Image != "stint:latest" {
			continue
		}
		if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) || service.Privileged || service.User != "" {
			t.Errorf("%s may do more than it needs", name)
		}
		for _, v := range service.Volumes {
			if info, err := os.Stat(v.Source); err != nil || !info.Mode().IsRegular() || !v.ReadOnly {
				t.Errorf("%s mounts %s: %v", name, v.Source, err)
			}
		}
		for _, p := range service.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s is published at %q", name, p.HostIP)
			}
		}
	}
	if state := project.Services["stint"].Environment["STINT_STATE"]; state == nil || *state != "none" {
		t.Error("what operators do would be kept on a file system that cannot be written")
	}
	if check := project.Services["stint"].HealthCheck; check == nil || check.Test[1] != "/stint" {
		t.Errorf("stint is checked by %+v", check)
	}
}

// TestStrict plants what the loader is to find.
func TestStrict(t *testing.T) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"read_only: true":           "readonly: true",
		"depends_on: [redis, app]":  "depends_on: [redis, application]",
		"networks: [inside]":        "networks: [outside]",
		"interval: 5s":              "interval: soon",
		`["127.0.0.1:8000:8000"]`:   `["127.0.0.1:8000:port"]`,
		"image: redis:7":            "images: redis:7",
		"- ./stint.yaml:/etc/stint": "- ./stint.yaml:etc:/x:/y/stint",
	} {
		if !strings.Contains(string(text), from) {
			t.Errorf("no %q", from)
			continue
		}
		path := filepath.Join(t.TempDir(), "compose.yaml")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), from, to)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t, path); err == nil {
			t.Errorf("%s is taken", to)
		}
	}
}
