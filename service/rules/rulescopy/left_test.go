package rulescopy_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules/rulescopy"
)

// TestLeft: a whole copy removes what processes left that were killed while they wrote
// one, and nothing that one may still be writing.
func TestLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "last.copy")
	old, fresh, other, named := path+".new123", path+".new456", filepath.Join(dir, "other.copy.new7"), path+".newyork"
	for _, name := range []string{old, fresh, other, named} {
		disk.Write(t, name, "half")
	}
	before := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{old, other, named} {
		if err := os.Chtimes(name, before, before); err != nil {
			t.Fatal(err)
		}
	}
	s := &rulesource.Snapshot{Version: rulesource.Version{Identity: "a", Revision: 1}, Name: "stint.yaml", Document: []byte("rules: []\n")}
	if err := rulescopy.NewFile(path).Begin(s, true, rulesource.Version{}).Keep(); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{old: false, fresh: true, other: true, named: true, path: true} {
		if _, err := os.Stat(name); stays != !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}
