package proof_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMutantsApply keeps the planted bugs from rotting: each patch must still
// apply to the sources. That the tests kill them all is what
// "go run ./cmd/mutants" shows.
func TestMutantsApply(t *testing.T) {
	if os.Getenv("STINT_MUTANT") != "" {
		t.Skip("one of them is planted")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git to check patches with")
	}
	patches, err := filepath.Glob("mutants/*.patch")
	if err != nil || len(patches) < 18 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	for _, patch := range patches {
		from, err := filepath.Abs(patch)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "apply", "--check", "-p1", from)
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", patch, err, out)
		}
	}
}
