// Package pages has tests read the documents.
package pages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Read returns the text of a file, named as from the root of the repository.
func Read(t testing.TB, name string) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "CHANGELOG.md")); err == nil {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		if at, err := filepath.Abs(dir); err != nil || at == filepath.Dir(at) {
			t.Fatal("no documents above this directory")
		}
	}
}

// Blocks returns the blocks of a text that are in a language.
func Blocks(text, language string) (blocks []string) {
	for _, rest := range strings.Split(text, "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(rest, "```")
		blocks = append(blocks, block)
	}
	return blocks
}
