package rulescopy_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules/rulescopy"
)

// has is what a copy has, by key.
type has map[string]string

func (h has) Begin(s *rulesource.Snapshot, _ bool) error { h["rules"] = string(s.Document); return nil }
func (h has) Plan(p *rulesource.Plan) error              { h[p.Value] = p.Plan; return nil }
func (h has) Override(o *rulesource.Override) error {
	h[o.Key] = strings.Join(o.Limits, ",")
	return nil
}

// TestChanges writes everything, then changes: the file has each once, and nothing that is
// removed or ended long ago. Changes behind a file that lacks some, or is not whole, are
// refused, and everything is asked for.
func TestChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "copy")
	c := rulescopy.NewFile(path)
	version := func(change int64) rulesource.Version {
		return rulesource.Version{Identity: "a", Revision: 1, Change: change}
	}
	keep := func(whole bool, held, change int64, document string, all ...rulesource.Override) error {
		s := &rulesource.Snapshot{Version: version(change), Name: "stint.yaml"}
		if document != "" {
			s.Document = []byte(document)
		}
		w := c.Begin(s, whole, version(held))
		for _, o := range all {
			w.Override(&o)
		}
		w.Plan(&rulesource.Plan{Attribute: "org", Value: "acme", Plan: "pro"})
		return w.Keep()
	}
	set := func(key, limit string) rulesource.Override {
		return rulesource.Override{Rule: "api", Key: key, Limits: []string{limit}}
	}
	ended := set("ended", "1/m")
	ended.Expires = time.Now().Add(-48 * time.Hour)
	if err := keep(true, 0, 1, "one", set("a", "1/m"), set("b", "1/m"), set("c", "1/m"), ended); err != nil {
		t.Fatal(err)
	}
	if err := keep(false, 1, 2, "", set("a", "2/m"), rulesource.Override{Rule: "api", Key: "b", Removed: true}, set("d", "2/m")); err != nil {
		t.Fatal(err)
	}
	got := has{}
	if _, err := rulescopy.NewFile(path).Load(t.Context(), rulesource.Version{}, got); err != nil {
		t.Fatal(err)
	}
	if want := (has{"rules": "one", "a": "2/m", "c": "1/m", "d": "2/m", "acme": "pro"}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := keep(false, 3, 4, "", set("a", "4/m")); err == nil || !c.Stale() {
		t.Errorf("changes since 3 behind 2: %v", err)
	}
	if err := keep(true, 0, 4, "four"); err != nil || c.Stale() {
		t.Fatal(err)
	}
	whole := disk.Read(t, path)
	disk.Write(t, path, string(whole[:len(whole)-1]))
	if err := keep(false, 4, 5, "", set("a", "5/m")); err == nil || !c.Stale() {
		t.Errorf("changes behind a file that is cut off: %v", err)
	}
	if err := keep(true, 0, 5, "five"); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(filepath.Dir(path))
	left := slices.DeleteFunc(all, func(e os.DirEntry) bool { return e.Name() == "copy" || strings.HasSuffix(e.Name(), ".lock") })
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestDiskHangs: no change waits for a disk that does not answer, and once it does, everything is
// written. A pipe that nobody writes stands for such a disk.
func TestDiskHangs(t *testing.T) {
	defer rulescopy.SetDiskWithin(3 * time.Second)()
	path := filepath.Join(t.TempDir(), "copy")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	c := rulescopy.NewFile(path)
	begin := func(revision int64) *rulescopy.Writing {
		return c.Begin(&rulesource.Snapshot{Version: rulesource.Version{Identity: "a", Revision: revision}}, true, rulesource.Version{})
	}
	if err := begin(1).Keep(); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Fatalf("a disk that hangs: %v", err)
	}
	for range 10 {
		if begin(2) != nil || c.Stale() {
			t.Fatal("it writes beside what hangs")
		}
	}
	if at, lacks := c.Retry(); !lacks || time.Until(at) < time.Second {
		t.Errorf("it is tried again at %v", at)
	}
	disk, err := os.OpenFile(path, os.O_WRONLY, 0) // it answers
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	w := begin(3)
	for ; w == nil; w = begin(3) {
		time.Sleep(time.Millisecond)
	}
	if !c.Stale() {
		t.Error("what it lacks is not asked for once the disk answers")
	}
	if err := w.Keep(); err != nil {
		t.Fatal(err)
	}
	if last, _ := c.Last(); last.Version.Revision != 3 {
		t.Errorf("the copy has revision %d", last.Version.Revision)
	}
}
