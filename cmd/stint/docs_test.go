package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/planner/testkit/browser"
)

// picture is the arrivals and the limits of docs/compare.svg: ten a second by
// five algorithms, a burst on both sides of a window's edge, then a steady 20 a
// second.
var picture = []string{
	"--arrivals", "+1900ms 10@once +100ms 10@once +1s 40@20/s +1s", "--compare",
	"10/s fixed_window", "10/s sliding_log", "10/s sliding_counter", "10/s", "10/s leaky_queue",
}

// TestDocsPicture draws docs/compare.svg, the picture of README.md, from what
// stint simulate --json says, and compares. With -update, it writes it.
func TestDocsPicture(t *testing.T) {
	const file = "../../docs/compare.svg"
	answer := session{args: append([]string{"simulate", "--json"}, picture...)}.run()
	var c comparison
	if err := json.Unmarshal([]byte(answer), &c); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	golden.Equal(t, file, c.draw())
}

// A comparison is what of stint simulate --json the picture shows.
type comparison struct {
	Stretch, Column string
	Rows            []struct {
		Limits          []string
		Allowed, Denied int
		Most            int
		Passes, Denials []int
	}
}

func (c comparison) draw() string {
	const left, unit, bar, row, top = 24, 3, 9, 84, 30 // pixels; unit is one request
	width := left*2 + bar*len(c.Rows[0].Passes)
	height := top + row*len(c.Rows)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<title>What five limits of 10 a second let pass of the same requests</title>
<rect width="100%%" height="100%%" fill="#fff"/>
<rect x="%d" y="9" width="10" height="10" fill="#2a6f97"/><text x="%d" y="18">passed, at its start</text>
<rect x="%d" y="9" width="10" height="10" fill="#f2b8a2"/><text x="%d" y="18">denied</text>
<text x="%d" y="18" fill="#555">a bar is %s</text>
`, width, height, left, left+16, left+150, left+166, left+230, c.Column)
	for i, r := range c.Rows {
		base := top + row*(i+1) - 16
		fmt.Fprintf(&b, `<text x="%d" y="%d"><tspan font-weight="bold">%s</tspan>: %d passed, %d denied, at most %d in any %s</text>
`, left, base-46, strings.Join(r.Limits, " + "), r.Allowed, r.Denied, r.Most, c.Stretch)
		for x, n := range r.Passes {
			if n > 0 {
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#2a6f97"/>`, left+x*bar, base-n*unit, bar-1, n*unit)
			}
			if d := r.Denials[x]; d > 0 {
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f2b8a2"/>`, left+x*bar, base-(n+d)*unit, bar-1, d*unit)
			}
		}
		fmt.Fprintf(&b, "\n<path d=\"M%d %d.5H%d\" stroke=\"#999\"/>\n", left, base, width-left)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// root is where a reader of the documents is: the top of the repository.
const root = "../.."

// tested returns what stint test says of a test on rules.
func tested(t *testing.T, rules, test string) string {
	dir := t.TempDir()
	disk.Write(t, dir+"/stint.yaml", rules)
	return session{args: []string{"test", disk.Write(t, dir+"/stint_test.yaml", test)}}.run()
}

// documents returns the pages that a reader may copy commands from.
func documents(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			name, _ := filepath.Rel(root, file)
			files = append(files, name)
		}
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
		text := pages.Read(t, file)
		var now strings.Builder
		info, inside := "", false
		for lines := strings.SplitAfter(text, "\n"); len(lines) > 0; {
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
			if got != want && !*golden.Update {
				t.Errorf("%s: $ %s\ngot:\n%s\nwant:\n%s", file, command, got, want)
			}
			now.WriteString(got)
			ran++
		}
		if *golden.Update && now.String() != text {
			disk.Write(t, filepath.Join(root, file), now.String())
		}
	}
	if ran < 5 {
		t.Errorf("%d commands", ran)
	}
}

// TestDocsTest runs the test that docs/TEST.md begins with on the rules of README.md, as
// its reader does, the tests of docs/COOKBOOK.md, each on the rules before it, and one
// more of its first rules, which stand in place of fail2ban: five failures, and the next try
// begins an hour.
func TestDocsTest(t *testing.T) {
	page := pages.Read(t, "docs/TEST.md")
	got := tested(t, pages.Blocks(pages.Read(t, "README.md"), "yaml")[0], pages.Blocks(page, "yaml")[0])
	if line := strings.TrimSuffix(got, "\n"); strings.Contains(line, "\n") || !strings.Contains(page, "`"+line+"`") {
		t.Errorf("docs/TEST.md does not say that this is printed:\n%s", got)
	}
	cookbook := pages.Read(t, "docs/COOKBOOK.md")
	tests := map[string][]string{"fail2ban": {pages.Blocks(cookbook, "yaml")[0], banTest}}
	for _, recipe := range strings.Split(cookbook, "\n## ")[1:] {
		if files := pages.Blocks(recipe, "yaml"); len(files) > 1 {
			name, _, _ := strings.Cut(recipe, "\n")
			tests[name] = files
		}
	}
	if len(tests) < 5 {
		t.Errorf("%d tests were run", len(tests))
	}
	for name, files := range tests {
		if got := tested(t, files[0], files[1]); !strings.HasPrefix(got, "ok ") || strings.Contains(got, "FAIL") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

const banTest = `rules: stint.yaml
tests:
  - name: who logs in is not counted
    requests:
      - {t: 0s, times: 60, every: 1s, attributes: {method: POST, path: /login, ip: 192.0.2.7}, response: {status: 303}, expect: {allowed: true}}
  - name: who fails five times is out for an hour
    requests:
      - {t: 0s, times: 4, every: 1m, attributes: &bot {method: POST, path: /login, ip: 192.0.2.7}, response: {status: 401}, expect: {allowed: true}}
      - {t: 4m, attributes: *bot, response: {status: 200}, expect: {allowed: true}}
      - {t: 5m, attributes: *bot, response: {status: 403}, expect: {allowed: true}}
      - {t: 6m, attributes: *bot, response: {status: 200}, expect: {allowed: false, denied_by: failures, retry_after: 1h}}
      - {t: 20m, attributes: {method: GET, path: /login, ip: 192.0.2.7}, expect: {allowed: true}}
      - {t: 20m, attributes: {method: POST, path: /login, ip: 192.0.2.8}, response: {status: 200}, expect: {allowed: true}}
      - {t: 65m, attributes: *bot, response: {status: 200}, expect: {allowed: false, retry_after: 1m}}
      - {t: 66m, attributes: *bot, response: {status: 200}, expect: {allowed: true}}
`

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
		text := pages.Read(t, file)
		inside, shown := false, false // in a block; behind a command that is run
		for lines := strings.Split(text, "\n"); len(lines) > 0; lines = lines[1:] {
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
		text := pages.Read(t, file)
		for _, rules := range pages.Blocks(text, "yaml") {
			if !strings.Contains("\n"+rules, "\nrules:\n  - ") {
				continue
			}
			found++
			if got := (session{args: []string{"validate", "--strict", "-"}, in: rules}).run(); !strings.Contains(got, "no warnings") {
				t.Errorf("%s, of\n%s:\n%s", file, rules, got)
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

// madeUp feeds the page an hour of invented traffic.
const madeUp = `(async () => {
	const { heard } = await import(location.pathname + 'live.js');
	let seed = 7;
	const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
	const wave = (i, n) => 1 + 0.35 * Math.sin((i / n) * 6) + 0.3 * random();
	const hour = (n, up, down, from) => ({allowed: Array.from({length: n}, (_, i) => Math.round(up * wave(i, n))),
		denied: Array.from({length: n}, (_, i) => Math.round((i / n > from ? down : down / 30) * wave(i, n)))});
	const rules = [['login', 40, 22, 0.6], ['api', 3000, 90, 0.8], ['search', 700, 12, 0], ['downloads', 90, 1, 0]].map(([rule, up, down, from]) => ({rule, ...hour(60, up, down, from)}));
	const sum = (v) => v.reduce((a, b) => a + b, 0);
	const at = new Date().toISOString();
	const hash = () => Array.from({length: 16}, () => Math.floor(random() * 16).toString(16)).join('');
	const keys = ['api', 'login', 'api', 'login', 'search'].map((rule, i) => ({rule, key_hash: hash(), count: Math.round(900 / (i + 1)), limit: {api: '1000/1m', login: '5/1m sliding_log', search: '100/1m'}[rule], part: 0.99 - i * 0.03, used: 990 - i * 30, since: at, last: at, at}));
	for (const span of ['hour', 'day']) heard(span, JSON.stringify({to: at, step: 10, ...hour(360, 620, 30, 0.75), rules, others: 3}));
	heard('now', JSON.stringify({at, version: {name: 'stint.yaml', hash: '', revision: 42}, minutes: 10, allowed_per_second: 64.2, denied_per_second: 4.1, rules_in_force: 7,
		rules: rules.map((r) => ({rule: r.rule, allowed: sum(r.allowed) * 9, denied: sum(r.denied) * 4, allowed_per_second: r.allowed.at(-1) / 60, denied_per_second: r.denied.at(-1) / 60})),
		denied: keys, nearest: keys.toReversed().map((k, i) => ({...k, part: 0.99 - i * 0.03})), stores: [{store: 'memory', keys: 184201, max_keys: 1048576, bytes: 48 * 1048576}],
		nodes: [{node: 'eu-1:8080', version: 42, change: 9, seen: at, error: ''}, {node: 'eu-2:8080', version: 42, change: 9, seen: at, error: ''}, {node: 'us-1:8080', version: 41, change: 9, seen: at, error: ''}]}));
	return 0;
})()`

// TestDocsPage takes the pictures of docs/OPERATE.md, with -update.
func TestDocsPage(t *testing.T) {
	if !*golden.Update {
		t.Skip("-update takes the pictures")
	}
	pictures := []struct {
		name, hash string
		look       browser.Look
		do         func(tab *browser.Tab)
	}{
		{"overview", "", browser.Look{Width: 1180, Height: 900}, func(tab *browser.Tab) { browser.Eval[int](tab, madeUp) }},
		{"client", "client?header.x-api-key=partner-1", browser.Look{Width: 1180, Height: 620}, func(tab *browser.Tab) { tab.Says("#view", "Denied now by rule orders.", "What was done") }},
		{"edit", "edit?line=4", browser.Look{Width: 1180, Height: 1120, Dark: true}, func(tab *browser.Tab) {
			tab.Says("#verdict", "Good")
			tab.Set("#document", strings.Replace(pageRules, "5 per hour", "3 per hour", 1))
			tab.Until("document.body.dataset.checked === '2'")
			tab.Click("#view", "Rehearse")
			tab.Says("#rehearsed", "newly denied")
		}},
		{"phone", "", browser.Look{Width: 360, Height: 900}, func(tab *browser.Tab) { browser.Eval[int](tab, madeUp) }},
	}
	p := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", pageRules))
	for i := range 9 {
		p.requests(fmt.Sprint("partner-", i), 2+rand.IntN(7))
	}
	p.stint("override", "set", "orders", "partner-1", "50/h", "--for", "1h", "--reason", "ticket 4711")
	p.stint("audit", "undo")
	p.requests("partner-1", 9)
	chromium := browser.Start(t)
	for _, c := range pictures {
		tab := browser.Open(t, chromium, p.admin, "/ui/#/"+c.hash, c.look)
		tab.Until("document.querySelector('#view').innerText !== ''")
		if c.hash == "" {
			tab.Says("#view", "Reveal")
		}
		c.do(tab)
		disk.Write(t, "../../docs/page-"+c.name+".png", string(browser.Small(t, tab.Shot())))
	}
}
