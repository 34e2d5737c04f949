package storecheck_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/service/storecheck"
)

// In the script: a command that is called, by whatever name the function goes,
// and a call of which the command is not written there.
var (
	called  = regexp.MustCompile(`[\w.]+\(\s*'([A-Z]+)'`)
	dynamic = regexp.MustCompile(`(\bcall|\bredis\.pcall)\(\s*[^'\s]`)
)

// TestCommandsOfScript reads which commands the script calls: those are what a
// user is said to need, and what its caller sends besides.
func TestCommandsOfScript(t *testing.T) {
	files, err := filepath.Glob("../../redisstore/lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("no script: %v", err)
	}
	want := []string{"evalsha", "eval", "ping"} // of the caller
	for _, file := range files {
		text := disk.Read(t, file)
		if at := dynamic.Find(text); at != nil {
			t.Errorf("%s: %s…: a command that this test cannot read", file, at)
		}
		for _, m := range called.FindAllSubmatch(text, -1) {
			want = append(want, strings.ToLower(string(m[1])))
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	want = slices.DeleteFunc(want, func(name string) bool { return name == "info" }) // done without where it is denied
	got, _ := storecheck.Names()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("a user is said to need\n%v\nthe script and its caller use\n%v", got, want)
	}
}

// TestCommandsOfDocument holds the user of docs/REDIS-REFERENCE.md to what is needed.
func TestCommandsOfDocument(t *testing.T) {
	text := pages.Read(t, "docs/REDIS-REFERENCE.md")
	line := regexp.MustCompile(`(?m)^ACL SETUSER stint .*$`).FindString(text)
	always, besides := storecheck.Names()
	if _, granted, _ := strings.Cut(line, " -@all "); granted != "+"+strings.Join(always, " +") {
		t.Errorf("docs/REDIS-REFERENCE.md gives\n%s\nneeded is\n+%s", granted, strings.Join(always, " +"))
	}
	for _, name := range besides {
		if !strings.Contains(text, "`+"+name+"`") {
			t.Errorf("docs/REDIS-REFERENCE.md does not say where +%s is needed", name)
		}
	}
}
