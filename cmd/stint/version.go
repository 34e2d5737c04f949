package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

// Help is what "stint version --help" says.
func (versionCmd) Help() string {
	return `For example:

    stint version
    stint --version`
}

// Run prints the version, and the commit when the build knew it.
func (versionCmd) Run(e *env) error {
	_, err := fmt.Fprintln(e.out, version())
	return err
}

// version describes this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describe(info)
}

// released is the version of a release, set by -ldflags "-X main.released=v0.1.0".
// Without it, the version is the one that Go recorded in the binary.
var released string

// describe writes version, commit and platform of a build as one line.
func describe(info *debug.BuildInfo) string {
	version, commit, changed := info.Main.Version, "", ""
	switch {
	case released != "":
		version = released
	case version == "", version == "(devel)":
		version = "development"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = ", commit " + s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				changed = " with changes"
			}
		}
	}
	if commit == "" {
		changed = ""
	}
	return fmt.Sprintf("stint %s%s%s, %s, %s/%s", version, commit, changed, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
