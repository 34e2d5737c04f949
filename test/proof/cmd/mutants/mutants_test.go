package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestKiller(t *testing.T) {
	for _, c := range []struct{ out, want string }{
		{"--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/b (0.00s)\nFAIL\nFAIL\tgithub.com/stint-dev/stint/test/proof\t0.1s\n", "test/proof TestA/b"},
		{"ok  \tgithub.com/stint-dev/stint/memstore\t1s\n--- FAIL: TestC (0.01s)\nFAIL\nFAIL\tgithub.com/stint-dev/stint\t0.1s\n", "stint TestC"},
		{"panic: test timed out after 1m\n\trunning tests:\n\t\tTestD (60s)\nFAIL\tgithub.com/stint-dev/stint/memstore\t60s\n", "memstore TestD"},
		{"panic: boom\n\ngoroutine 1\nFAIL\tgithub.com/stint-dev/stint/memstore\t60s\n", "memstore: panic: boom"},
		{"x.go:1: undefined: y\nFAIL\tgithub.com/stint-dev/stint/memstore [build failed]\n", ""},
	} {
		if got := killer(c.out); got != c.want {
			t.Errorf("%q: killed by %q, want %q", c.out, got, c.want)
		}
	}
}

func TestKillers(t *testing.T) {
	s := stage{"test/proof", []string{".", "-short", "-skip", "^TestX", "-rapid.checks=4000"}, nil}
	for _, c := range []struct {
		stage  stage
		killer string
		hangs  bool
		want   string
	}{
		{s, "test/proof TestA/b", false, ". -run ^TestA$ -short -rapid.checks=4000"},
		{s, "test/proof/model TestA", true, "./model -run ^TestA$ -short -rapid.checks=4000 -timeout=1m"},
		{stage{".", []string{".", "./memstore", "-short"}, nil}, "stint TestA", false, ". -run ^TestA$ -short"},
		{stage{".", []string{".", "./memstore", "-short"}, nil}, "memstore TestA", false, "./memstore -run ^TestA$ -short"},
		{stage{".", []string{"."}, nil}, "memstore: panic: boom", false, ""},
	} {
		if got := strings.Join(c.stage.only(c.killer, c.hangs).args, " "); got != c.want {
			t.Errorf("%s: run %q, want %q", c.killer, got, c.want)
		}
	}

	dir := t.TempDir()
	a, b := s.only("test/proof TestA", false), s.only("test/proof TestB", true)
	for name, test := range map[string]stage{"b": b, "a": a, "unknown": {}} {
		if err := writeKiller(dir, name, test); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readKillers(dir)
	if err != nil || len(got) != 2 || !slices.Equal(got["a"].args, a.args) || got["b"].dir != "test/proof" {
		t.Errorf("read back: %v, %v", got, err)
	}
	twice := filepath.Join(dir, "twice")
	if err := errors.Join(os.Mkdir(twice, 0o755), os.WriteFile(filepath.Join(twice, killersFile), []byte("a proof . -short\na proof . -run ^TestA$\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := readKillers(twice); err == nil || !strings.Contains(err.Error(), "a has two lines") {
		t.Errorf("a bug with two lines: %v", err)
	}
}

// TestReport goes on behind a bug that tests cannot judge, and counts it.
func TestReport(t *testing.T) {
	bugs, ends, noted := make([]bug, 3), make([]chan verdict, 3), 0
	for i, v := range []verdict{{failed: true}, {wrong: errFails}, {failed: true}} {
		ends[i] = make(chan verdict, 1)
		ends[i] <- v
	}
	survivors, err := report(bugs, ends, func(bug, verdict) error { noted++; return nil })
	if survivors != 1 || noted != 3 || err != nil {
		t.Errorf("%d of %d bugs survive, %v", survivors, noted, err)
	}
}

func TestPlanted(t *testing.T) {
	all, err := planted("../../../..", nil)
	if err != nil || len(all) < 18 {
		t.Fatalf("%d bugs, %v", len(all), err)
	}
	for _, b := range all {
		if len(b.files) == 0 || len(stagesOf(b.files...)) == 0 {
			t.Errorf("%s: it changes %q, which no stage looks at", b.name, b.files)
		}
		if b.what == "" || b.breaks == "" {
			t.Errorf("%s: what it is or what it breaks is not said", b.name)
		}
		for _, test := range killersOf(b.last) {
			if !holds(t, filepath.Join("../../../..", b.last.dir, b.last.args[0]), "func "+test) {
				t.Errorf("%s: %s/%s has no test %s, which killed it", b.name, b.last.dir, b.last.args[0], test)
			}
		}
	}
	if some, err := planted("../../../..", []string{"float_tat"}); err != nil || len(some) != 1 {
		t.Errorf("float_tat alone: %v, %v", some, err)
	}
	if _, err := planted("../../../..", []string{"no such"}); err == nil {
		t.Error("an unknown bug is not refused")
	}
}

// killersOf returns the names of the tests that a stage runs; none where it runs all.
func killersOf(s stage) (names []string) {
	if at := slices.Index(s.args, "-run"); at >= 0 {
		for name := range strings.SplitSeq(s.args[at+1], "|") {
			names = append(names, strings.Trim(name, "^$()"))
		}
	}
	return names
}

// holds reports whether a test file of a directory has a text.
func holds(t *testing.T, dir, text string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(source), text)
	})
}
