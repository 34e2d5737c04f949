package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// published are the directories of the modules that others require or install, each
// after those that it requires itself. "." is the root.
var published = []string{
	".", "redisstore", "redisstore/goredis", "grpclimit", "otellimit", "rulesdb", "cmd",
	"adapters/caddylimit", "adapters/connectlimit", "adapters/echolimit", "adapters/fiberlimit", "adapters/ginlimit",
}

var versionForm = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// tag gives every published module of the commit in dir a tag for the version, as go
// looks for it. It makes all of them or, where something is not ready, none; it
// pushes nothing.
func tag(ctx context.Context, w io.Writer, dir, version string) error {
	if !versionForm.MatchString(version) {
		return fmt.Errorf("--tag %s: want a version such as v0.1.0", version)
	}
	if status, err := command(ctx, dir, nil, "git", "status", "--porcelain"); err != nil {
		return err
	} else if status != "" {
		return fmt.Errorf("not all is committed:\n%s", status)
	}
	var tags []string
	for i, module := range published {
		if err := ready(ctx, filepath.Join(dir, module), version, published[:i]); err != nil {
			return err
		}
		tags = append(tags, path.Join(module, version))
	}
	if there, err := command(ctx, dir, nil, "git", append([]string{"tag", "--list"}, tags...)...); err != nil {
		return err
	} else if there != "" {
		return fmt.Errorf("there are tags already:\n%s", there)
	}
	for _, one := range tags {
		if _, err := command(ctx, dir, nil, "git", "tag", one); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "git push --atomic origin %s\n", strings.Join(tags, " "))
	return err
}

// ready says whether the module in dir requires, of the others here, the version that
// is to be tagged, and only those that are tagged before.
func ready(ctx context.Context, dir, version string, before []string) error {
	text, err := command(ctx, dir, nil, "go", "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var m struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	for _, r := range m.Require {
		of, ours := strings.CutPrefix(r.Path+"/", stint+"/")
		switch of = path.Clean(of); {
		case !ours:
		case r.Version != version:
			return fmt.Errorf("%s requires %s %s: write %s into its go.mod, and into go.work", m.Module.Path, r.Path, r.Version, version)
		case !slices.Contains(before, of):
			return fmt.Errorf("%s requires %s, which is not tagged before it", m.Module.Path, r.Path)
		}
	}
	return nil
}
