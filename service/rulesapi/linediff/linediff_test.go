package linediff_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/service/rulesapi/linediff"
)

func TestUnified(t *testing.T) {
	got := linediff.Unified("revision 1", "stint.yaml", "a\nb\nc\n", "a\nx\nc")
	want := "--- revision 1\n+++ stint.yaml\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+x\n+c\n\\ No newline at end of file\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := linediff.Unified("a", "b", "same", "same"); got != "" {
		t.Errorf("the same text: %q", got)
	}
}

// TestPatch gives differences of random texts to patch, which makes the second
// of the first.
func TestPatch(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("patch: not installed")
	}
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		var b strings.Builder
		for range n {
			fmt.Fprintf(&b, "line %d\n", random.IntN(12))
		}
		return strings.TrimSuffix(b.String(), strings.Repeat("\n", random.IntN(2)))
	}
	for i := range 150 {
		from, to := text(random.IntN(60)), text(random.IntN(60))
		if i%5 == 0 {
			from, to = text(3000), text(3000)
		}
		if i%3 == 0 {
			to = from + to
		}
		if from == to {
			continue
		}
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(from), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("patch", "-s", "--force", file)
		cmd.Stdin = strings.NewReader(linediff.Unified("a", "b", from, to))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q to %q: %v\n%s", from, to, err, out)
		}
		got, err := os.ReadFile(file)
		if err != nil && to != "" { // patch removes a file that gets empty
			t.Fatal(err)
		}
		if string(got) != to {
			t.Fatalf("%q to %q: got %q", from, to, got)
		}
	}
}
