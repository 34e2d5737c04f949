package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// module is one whose tests do all that tests do.
var module = map[string]string{
	"go.mod":            "module m\n\ngo 1.25\n",
	"ok/ok_test.go":     "package ok\nimport (\"fmt\"; \"testing\")\nfunc TestOK(t *testing.T) { t.Log(\"quiet\"); fmt.Println(\"quiet\") }\n",
	"none/none.go":      "package none\n",
	"build/b_test.go":   "package build\nimport \"testing\"\nfunc TestB(t *testing.T) { x }\n",
	"fail/fail_test.go": "package fail\nimport \"testing\"\nfunc TestFail(t *testing.T) {\n\tt.Log(\"before\")\n\tt.Run(\"a b\", func(t *testing.T) { t.Error(\"wrong\\nin two lines\") })\n\tt.Run(\"fine\", func(t *testing.T) { t.Log(\"quiet\") })\n}\nfunc TestFine(t *testing.T) { t.Log(\"quiet\") }\n",
	"panic/p_test.go":   "package panic\nimport \"testing\"\nfunc TestPanic(t *testing.T) { panic(\"at the disco\") }\n",
	"exit/e_test.go":    "package exit\nimport (\"os\"; \"testing\")\nfunc TestExit(t *testing.T) { os.Exit(3) }\n",
	"skip/skip_test.go": "package skip\nimport \"testing\"\nfunc TestSkip(t *testing.T) {\n\tt.Log(\"looking\")\n\tt.Skip(\"nginx is not installed\")\n}\n" +
		"func TestOther(t *testing.T) { t.Run(\"in\", func(t *testing.T) { t.Skipf(\"%s is not installed\", \"nginx\") }) }\nfunc TestMute(t *testing.T) { t.SkipNow() }\n",
}

var changing = regexp.MustCompile(`\d+\.\d+s|0x[0-9a-f]+|goroutine \d+|\+0x.*|\(cached\)`)

// lines returns what does not change from run to run, in order. How far a line is
// indented, and which status a program ended with, go test -json does not say.
func lines(text string) []string {
	all := strings.Split(changing.ReplaceAllString(text, "*"), "\n")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	all = slices.DeleteFunc(all, func(line string) bool { return line == "" || line == "exit status 3" })
	slices.Sort(all)
	return all
}

// TestPrints prints of a module's tests what go test itself prints, and then what was
// left out.
func TestPrints(t *testing.T) {
	dir := t.TempDir()
	for file, text := range module {
		write(t, filepath.Join(dir, file), text)
	}
	plain := exec.Command("go", "test", "./...")
	plain.Dir, plain.Env = dir, append(os.Environ(), "GOWORK=off")
	want, err := plain.CombinedOutput()
	if err == nil || len(want) < 500 {
		t.Fatalf("%v: %s", err, want)
	}
	var b bytes.Buffer
	r := newReader(&b)
	if status := test(r, dir, []string{"GOWORK=off"}, "./..."); status != 1 {
		t.Errorf("status %d", status)
	}
	got := b.String()
	if want := strings.TrimSuffix(string(want), "FAIL\n"); !slices.Equal(lines(got), lines(want)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	b.Reset()
	r.summary()
	if want := "\nLeft out:\n  nginx is not installed: TestOther/in, TestSkip\n  without a word: TestMute\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	b.Reset()
	if status := test(r, filepath.Join(dir, "ok"), []string{"GOWORK=off"}, "-count=1", "."); status != 0 || !strings.HasPrefix(b.String(), "ok  \tm/ok\t") {
		t.Errorf("status %d: %s", status, b.String())
	}
}

// TestParse reads which steps follow one another, and which run at the same time.
func TestParse(t *testing.T) {
	for _, c := range []struct{ args, want, err string }{
		{"test -race work", "[[{test [-race work]}]]", ""},
		{"test work -- apart a b", "[[{test [work]} {apart [a b]}]]", ""},
		{"test ./a -- apart a b ++ vet work -- test -race work", "[[{test [./a]} {apart [a b]}] [{vet [work]} {test [-race work]}]]", ""},
		{"", "[]", `"" is no step`},
		{"./a", "[]", `"./a" is no step`},
		{"test ./a --", "[]", `"" is no step`},
		{"test ++ vet ./a", "[]", `"test" is no step`},
	} {
		got, err := parse(strings.Fields(c.args))
		if fmt.Sprint(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", c.args, got, err)
		}
	}
}

// TestSteps runs steps as the command line has them: what fails ends its line, and no
// step begins after it.
func TestSteps(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":      "module m\n\ngo 1.25\n",
		"a/a_test.go": "package a\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Skip(\"nothing to see\") }\n",
		"b/b_test.go": "package b\nimport \"testing\"\nfunc TestB(t *testing.T) { t.Error(\"wrong\") }\n",
		"c/c.go":      "package c\nimport \"fmt\"\nfunc F() { fmt.Printf(\"%d\", \"text\") }\n",
	} {
		write(t, filepath.Join(dir, file), text)
	}
	program := filepath.Join(t.TempDir(), "tests")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		args   string
		status int
		say    []string
		not    []string
	}{
		{"test ./a -- apart -count=1 . ++ vet ./a", 1, []string{"ok  \tm/a\t", "FAIL\tm/b\t", "nothing to see: TestA"}, nil},
		{"test ./b -- test ./a", 1, []string{"wrong", "FAIL\tm/b\t"}, []string{"m/a"}},
		{"vet ./c -- test ./a", 1, []string{"Printf format %d"}, []string{"m/a"}},
		{"vet ./a ++ test ./a", 0, []string{"ok  \tm/a\t", "Left out:"}, nil},
		{"west ./a", 2, []string{"is no step"}, nil},
	} {
		run := exec.Command(program, strings.Fields(c.args)...)
		run.Dir, run.Env = dir, append(os.Environ(), "GOWORK=off")
		out, _ := run.CombinedOutput()
		if got := run.ProcessState.ExitCode(); got != c.status {
			t.Errorf("%s: status %d, want %d:\n%s", c.args, got, c.status, out)
		}
		for _, want := range c.say {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: does not say %q:\n%s", c.args, want, out)
			}
		}
		for _, not := range c.not {
			if strings.Contains(string(out), not) {
				t.Errorf("%s: says %q:\n%s", c.args, not, out)
			}
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
