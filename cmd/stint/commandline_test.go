package main_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// asProgram makes the program of this test's binary, named stint, and returns
// its directory.
func asProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := disk.Write(t, dir+"/stint", "#!/bin/sh\nSTINT_TEST_MAIN=1 exec '"+self+"' \"$@\"\n")
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCompletion presses Tab in bash, zsh and fish, as far as they are here.
func TestCompletion(t *testing.T) {
	dir := asProgram(t)
	shells := map[string]struct{ drive string }{
		// COMP_WORDS is what readline hands over: it has cut --flag=value apart.
		"bash": {`source <(stint completion bash)
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _stint; echo "${COMPREPLY[*]}"; }
try stint simul
try stint rules p
try stint serve --dialect draft
try stint serve --dialect = draft
try stint serve --resp-l
try stint validate x`},
		// compadd and _describe are for a terminal: these stand in for them.
		"zsh": {`_describe() { local -a all; all=("${(@P)2}"); print -r -- "${(j: :)${(@)all%%:*}}"; }
_files() { print; }
compdef() { :; }
source <(stint completion zsh)
try() { words=("$@"); CURRENT=$#; _stint; }
try stint simul
try stint rules p
try stint serve --dialect draft
try stint serve --dialect=draft
try stint serve --resp-l
try stint validate x`},
		"fish": {`stint completion fish | source
function try; complete -C "$argv" | cut -f1 | string join ' '; end
function empty; test (count (complete -C "$argv")) -eq 0; and echo; end
try 'stint simul'
try 'stint rules p'
try 'stint serve --dialect draft'
try 'stint serve --dialect=draft'
try 'stint serve --resp-l'
empty 'stint validate x'`},
	}
	for name, shell := range shells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := need.Program(t, name)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			run := exec.CommandContext(ctx, program, "-c", shell.drive)
			home := t.TempDir()
			run.Dir = home
			run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+home)
			got, err := run.CombinedOutput()
			equals := "draft06 draft11"
			if name != "bash" { // which wants what comes behind =
				equals = "--dialect=draft06 --dialect=draft11"
			}
			want := "simulate\nprune pull push\ndraft06 draft11\n" + equals + "\n--resp-limits\n\n"
			if err != nil || string(got) != want {
				t.Errorf("%v\ngot:\n%s\nwant:\n%s", err, got, want)
			}
		})
	}
}

// TestMan writes the pages and lets man say what it thinks of each: what is in
// the help is on the page.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	must(t, "man", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "stint*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	man := need.Program(t, "man")
	for _, page := range []string{"stint.1", "stint-serve.1", "stint-simulate.1", "stint-rules-push.1"} {
		show := exec.Command(man, "--warnings", "-l", filepath.Join(dir, page))
		show.Env = append(os.Environ(), "MANWIDTH=300", "LC_ALL=C.UTF-8", "MANPAGER=cat")
		var reported bytes.Buffer
		show.Stderr = &reported
		text, err := show.Output()
		if err != nil || reported.Len() > 0 {
			t.Fatalf("%s: %v: %s", page, err, reported.String())
		}
		plain := strings.NewReplacer("‐", "-", "−", "-").Replace(string(text))
		for _, want := range map[string][]string{
			"stint.1":            {"stint - An exact rate limiter", "stint-doctor(1)", "--version", "    100 per minute               100 at once, then one every 600 ms"},
			"stint-serve.1":      {"stint serve [<file>] [flags]", "-c, --config=FILE", "($STINT_TOKEN_FILE)", `--json '{"attributes":{"path":"/login","ip":"192.0.2.7"}}' \`},
			"stint-simulate.1":   {`echo '{"t":"1s","key":"a"}' | stint simulate --limit '5/s burst 5'`},
			"stint-rules-push.1": {"stint-rules(1)"},
		}[page] {
			if !strings.Contains(plain, want) {
				t.Errorf("%s has no %q:\n%.3000s", page, want, plain)
			}
		}
	}
}

// TestServeArguments serves a file that is an argument, and limits in place of
// one.
func TestServeArguments(t *testing.T) {
	file := disk.Write(t, t.TempDir()+"/stint.yaml", "rules:\n  - {name: file, key: [ip], limits: [\"1/h\"]}\n")
	for _, try := range []struct {
		args []string
		rule string
	}{
		{[]string{file, "--dialect", "none", "--log-format", "text"}, "file"},
		{[]string{"--limit", "1/h", "--key", "ip"}, "serve"},
		{[]string{"--limit", "1/h", "--limit", "5 per day in UTC", "--key", "none"}, "serve"},
	} {
		t.Run(strings.Join(try.args, " "), func(t *testing.T) {
			s := startServe(t, append(try.args, "--http", "localhost:0")...)
			s.want("/v1/reset", "", http.StatusForbidden, "--operator-token-file FILE") // everyone here may ask, and no more
			s.want("/v1/check", "", http.StatusOK, `"allowed":true,"rule":"`+try.rule+`"`)
			s.want("/v1/check", "", http.StatusTooManyRequests, `"allowed":false,"rule":"`+try.rule+`"`)
			s.stop("")
		})
	}
}

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
