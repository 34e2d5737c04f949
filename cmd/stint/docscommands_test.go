package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
)

// root is where a reader of the documents is: the top of the repository.
const root = "../.."

// documents returns the pages that a reader may copy commands from.
func documents(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 15 {
		t.Fatalf("%d documents", len(files))
	}
	return files
}

// TestDocsCommands runs what stands behind "$ " in a document, as it stands, by a
// shell in the root, and compares what it prints with what follows. A block that
// is marked as a transcript is shown alone. With -update, it writes what the
// commands print now.
func TestDocsCommands(t *testing.T) {
	path := "PATH=" + asProgram(t) + ":" + os.Getenv("PATH")
	ran := 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var now strings.Builder
		info, inside := "", false
		for lines := strings.SplitAfter(string(text), "\n"); len(lines) > 0; {
			line := lines[0]
			lines = lines[1:]
			now.WriteString(line)
			if fence, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
				info, inside = fence, !inside
				continue
			}
			if !inside || info == "transcript" || !strings.HasPrefix(line, "$ ") {
				continue
			}
			command := strings.TrimPrefix(line, "$ ")
			for unfinished(command) && len(lines) > 0 {
				command += lines[0]
				now.WriteString(lines[0])
				lines = lines[1:]
			}
			end := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "```") || strings.HasPrefix(l, "$ ") })
			want := strings.Join(lines[:end], "")
			lines = lines[end:]
			got := inShell(t, path, command)
			if got != want && !*update {
				t.Errorf("%s: $ %s\ngot:\n%s\nwant:\n%s", file, command, got, want)
			}
			now.WriteString(got)
			ran++
		}
		if *update && now.String() != string(text) {
			if err := os.WriteFile(file, []byte(now.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ran < 5 {
		t.Errorf("%d commands", ran)
	}
}

// TestDocsTest runs the test that docs/TEST.md begins with on the rules of
// README.md, as its reader does.
func TestDocsTest(t *testing.T) {
	dir := t.TempDir()
	for name, page := range map[string]string{"stint.yaml": "README.md", "stint_test.yaml": "docs/TEST.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		_, block, _ := strings.Cut(string(text), "\n```yaml\n")
		block, _, _ = strings.Cut(block, "```")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/TEST.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := session{args: []string{"test", filepath.Join(dir, "stint_test.yaml")}}.run()
	if line := strings.TrimSuffix(got, "\n"); strings.Contains(line, "\n") || !strings.Contains(string(page), "`"+line+"`") {
		t.Errorf("docs/TEST.md does not say that this is printed:\n%s", got)
	}
}

// TestDocsCookbook runs the test that stands behind each rules file of docs/COOKBOOK.md.
func TestDocsCookbook(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/COOKBOOK.md"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, recipe := range strings.Split(string(page), "\n## ")[1:] {
		files := strings.Split(recipe, "\n```yaml\n")
		if len(files) < 3 {
			continue
		}
		ran++
		dir := t.TempDir()
		for i, name := range []string{"stint.yaml", "stint_test.yaml"} {
			text, _, _ := strings.Cut(files[i+1], "```")
			writeFile(t, filepath.Join(dir, name), text)
		}
		got := session{args: []string{"test", filepath.Join(dir, "stint_test.yaml")}}.run()
		if !strings.HasPrefix(got, "ok ") || strings.Contains(got, "FAIL") {
			t.Errorf("%s:\n%s", strings.SplitN(recipe, "\n", 2)[0], got)
		}
	}
	if ran < 4 {
		t.Errorf("%d tests were run", ran)
	}
}

// TestDocsBan runs the rule that docs/RULES.md has in place of fail2ban: five failures, and
// the next try begins an hour.
func TestDocsBan(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/RULES.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(text), "Instead of fail2ban")
	_, rule, _ = strings.Cut(rule, "```yaml\n")
	rule, _, _ = strings.Cut(rule, "```")
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "stint.yaml"), "rules:\n"+rule)
	test := writeFile(t, filepath.Join(dir, "stint_test.yaml"), `rules: stint.yaml
tests:
  - name: who logs in is not counted
    requests:
      - {t: 0s, times: 60, every: 1s, attributes: {method: POST, path: /login, ip: 192.0.2.7}, response: {status: 303}, expect: {allowed: true}}
  - name: who fails five times is out for an hour
    requests:
      - {t: 0s, times: 4, every: 1m, attributes: &bot {method: POST, path: /login, ip: 192.0.2.7}, response: {status: 401}, expect: {allowed: true}}
      - {t: 4m, attributes: *bot, response: {status: 200}, expect: {allowed: true}}
      - {t: 5m, attributes: *bot, response: {status: 403}, expect: {allowed: true}}
      - {t: 6m, attributes: *bot, response: {status: 200}, expect: {allowed: false, denied_by: login, retry_after: 1h}}
      - {t: 20m, attributes: {method: GET, path: /login, ip: 192.0.2.7}, expect: {allowed: true}}
      - {t: 20m, attributes: {method: POST, path: /login, ip: 192.0.2.8}, response: {status: 200}, expect: {allowed: true}}
      - {t: 65m, attributes: *bot, response: {status: 200}, expect: {allowed: false, retry_after: 1m}}
      - {t: 66m, attributes: *bot, response: {status: 200}, expect: {allowed: true}}
`)
	if got := (session{args: []string{"test", test}}).run(); strings.Count(got, "ok ") != 2 || strings.Contains(got, "FAIL") {
		t.Errorf("by the rule of docs/RULES.md:\n%s", got)
	}
}

// unfinished says whether a command goes on in the next line: behind a
// backslash, or until the END of its input.
func unfinished(command string) bool {
	return strings.HasSuffix(command, "\\\n") || strings.Contains(command, "<<'END'") && !strings.HasSuffix(command, "\nEND\n")
}

// inShell returns what a command prints, on both outputs.
func inShell(t *testing.T, path, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", command)
	shell.Dir = root
	shell.Env = append(os.Environ(), path)
	got, err := shell.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatalf("%s: %v", command, err)
	}
	return string(got)
}

// TestDocsFlags reads every other command line of the documents as stint does:
// each names commands and flags that there are.
func TestDocsFlags(t *testing.T) {
	read := 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		inside, shown := false, false // in a block; behind a command that is run
		for lines := strings.Split(string(text), "\n"); len(lines) > 0; lines = lines[1:] {
			line := strings.TrimSpace(lines[0])
			if strings.HasPrefix(line, "```") {
				inside, shown = !inside, line == "```text"
				continue
			}
			shown = shown || strings.HasPrefix(line, "$ ")
			for inside && strings.HasSuffix(line, `\`) && len(lines) > 1 {
				lines = lines[1:]
				line = strings.TrimSuffix(line, `\`) + strings.TrimSpace(lines[0])
			}
			line = strings.TrimPrefix(line, "go run ./cmd/")
			command, ok := strings.CutPrefix(line, "stint ")
			if !inside || shown || !ok {
				continue
			}
			if err := main.Parse(words(command)); err != nil {
				t.Errorf("%s: stint %s: %v", file, command, err)
			}
			read++
		}
	}
	if read < 20 {
		t.Errorf("%d command lines", read)
	}
}

// words cuts a command line as a shell does, up to a pipe, a redirection or a
// comment.
func words(command string) (all []string) {
	var word strings.Builder
	begun, quote := false, rune(0)
	end := func() {
		if begun {
			all = append(all, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, c := range command {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ':
			end()
		case strings.ContainsRune("|><;&", c), c == '#' && !begun:
			end()
			return all
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	end()
	return all
}

// TestDocsRules has stint validate --strict read the rules files that documents show
// and that packages bring along: a reader begins with these.
func TestDocsRules(t *testing.T) {
	found := 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at, block := range strings.Split(string(text), "\n```") {
			rules, shown := strings.CutPrefix(block, "yaml\n")
			if !shown || !strings.Contains("\n"+rules, "\nrules:\n  - ") {
				continue
			}
			found++
			if got := (session{args: []string{"validate", "--strict", "-"}, in: rules}).run(); !strings.Contains(got, "no warnings") {
				t.Errorf("%s, fence %d:\n%s", file, at, got)
			}
		}
	}
	if found < 8 {
		t.Errorf("%d rules files", found)
	}
	for _, file := range []string{"cmd/stint/demo.yaml", "release/container/stint.yaml", "release/systemd/stint.yaml"} {
		if got := (session{args: []string{"validate", "--strict", filepath.Join(root, file)}}).run(); !strings.Contains(got, "no warnings") {
			t.Errorf("%s:\n%s", file, got)
		}
	}
}
