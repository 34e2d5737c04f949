package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// The completion scripts run "stint complete-word" to learn what may stand at the cursor.
var (
	//go:embed completion/bash.sh
	bashCompletion string
	//go:embed completion/zsh.sh
	zshCompletion string
	//go:embed completion/fish.fish
	fishCompletion string
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is what "stint completion --help" says below the summary.
func (completionCmd) Help() string {
	return `For example:

    source <(stint completion bash)
    stint completion bash > /etc/bash_completion.d/stint
    stint completion zsh > "${fpath[1]}/_stint"
    stint completion fish > ~/.config/fish/completions/stint.fish`
}

// Run prints the script of a shell.
func (c *completionCmd) Run(e *env) error {
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	_, err := fmt.Fprint(e.out, script)
	return err
}

// completeWordCmd is the command that completion scripts run. Its arguments are the words
// of a command line up to the cursor; the last word is to be completed.
type completeWordCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints what the last word may become: one completion a line, then a tab and its
// summary.
func (c *completeWordCmd) Run(e *env) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, one := range completions(e.program.Node, words) {
		if _, err := fmt.Fprintf(e.out, "%s\t%s\n", one[0], one[1]); err != nil {
			return err
		}
	}
	return nil
}

// completions returns what the last of words may become under a command, each with
// its summary. It returns nothing for a word that is a file or a free value.
func completions(at *kong.Node, words []string) (found [][2]string) {
	words = joinValues(words)
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var value *kong.Flag // the flag whose value the next word is
	for _, word := range words[:len(words)-1] {
		if value != nil {
			value = nil
			continue
		}
		if name, ok := strings.CutPrefix(word, "--"); ok {
			if f := findFlag(at, name); f != nil && !f.IsBool() {
				value = f
			}
			continue
		}
		if i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
			at = at.Children[i]
		}
	}
	offer := func(prefix, word, summary string) {
		if strings.HasPrefix(prefix+word, last) {
			found = append(found, [2]string{prefix + word, firstSentence(summary)})
		}
	}
	offerAll := func(prefix string, words []string) {
		for _, one := range words {
			offer(prefix, one, "")
		}
	}
	name, _, set := strings.Cut(strings.TrimPrefix(last, "--"), "=")
	switch {
	case value != nil:
		offerAll("", value.EnumSlice())
	case strings.HasPrefix(last, "-") && set:
		if f := findFlag(at, name); f != nil {
			offerAll("--"+name+"=", f.EnumSlice())
		}
	case strings.HasPrefix(last, "-"):
		for _, f := range slices.Concat(at.AllFlags(true)...) {
			offer("--", f.Name, f.Help)
		}
	default:
		for _, n := range at.Children {
			if !n.Hidden {
				offer("", n.Name, n.Help)
			}
		}
		for _, arg := range at.Positional {
			offerAll("", arg.EnumSlice())
		}
	}
	slices.SortStableFunc(found, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	return found
}

// joinValues joins --flag, = and a value, which bash passes as three words.
func joinValues(words []string) (joined []string) {
	for i := 0; i < len(words); i++ {
		if words[i] == "=" && len(joined) > 0 && strings.HasPrefix(joined[len(joined)-1], "--") {
			joined[len(joined)-1] += "="
			if i++; i < len(words) {
				joined[len(joined)-1] += words[i]
			}
			continue
		}
		joined = append(joined, words[i])
	}
	return joined
}

func findFlag(at *kong.Node, name string) *kong.Flag {
	for _, f := range slices.Concat(at.AllFlags(false)...) {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// firstSentence returns the first sentence of a help text, to stand beside a word.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(strings.ReplaceAll(text, "\n", " "), ". ")
	return strings.TrimSuffix(text, ".")
}
