package main_test

import (
	"runtime/debug"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
)

func TestVersion(t *testing.T) {
	stamped := &debug.BuildInfo{}
	stamped.Main.Version = "v0.1.0"
	stamped.Settings = []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"},
		{Key: "vcs.modified", Value: "true"},
	}
	for _, test := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{stamped, "stint v0.1.0, commit 0123456789ab with changes, go1."},
		{&debug.BuildInfo{}, "stint development, go1."},
	} {
		if got := main.Describe(test.info); !strings.HasPrefix(got, test.want) {
			t.Errorf("%q, want it to begin with %q", got, test.want)
		}
	}
}
