package rules_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/service/rules"
)

// watch watches until the test ends.
func (b *bench) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Watch(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
}

func (b *bench) awaitCount(what string, n int64) {
	b.t.Helper()
	await.Until(b.t, what, func() bool { return b.count() == n })
}

// TestWatch changes a file in the ways that editors and people do.
func TestWatch(t *testing.T) {
	b := begin(t, limited(10))
	path := b.path
	b.take("x")
	disk.Write(t, path, limited(11)) // before the watch begins
	b.watch()
	b.awaitCount("changed before the watch", 11)

	disk.Write(t, path, limited(12))
	b.awaitCount("written in place", 12)
	replace(t, path, limited(13))
	b.awaitCount("renamed over", 13)

	replace(t, path, limited(14)[:20]) // at once, or an empty file may be met too
	await.Until(t, "truncated", func() bool { return b.logged("not reloaded") > 0 })
	if b.count() != 13 {
		t.Errorf("truncated: %d", b.count())
	}
	disk.Write(t, path, limited(14))
	b.awaitCount("whole again", 14)

	os.Remove(path)
	await.Until(t, "deleted", func() bool { return b.logged("no such file") > 0 })
	if b.count() != 14 {
		t.Errorf("deleted: %d", b.count())
	}
	disk.Write(t, path, limited(15))
	b.awaitCount("put back", 15)

	os.Rename(path, path+"~") // as some editors do
	disk.Write(t, path, limited(16))
	b.awaitCount("moved away and written anew", 16)
	if left := b.take("x"); left != 14 {
		t.Errorf("what was used is lost: left %d", left)
	}
}

// TestWatchSame touches a file without changing it, which reloads nothing.
func TestWatchSame(t *testing.T) {
	b := begin(t, limited(10))
	path, other := b.path, filepath.Join(filepath.Dir(b.path), "other.yaml")
	b.watch()
	p := b.Policy()
	for range 3 {
		replace(t, path, limited(10))
		disk.Write(t, other, limited(99))
		if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // so that they are not all seen as one
	}
	if b.Policy() != p {
		t.Error("reloaded")
	}
	replace(t, path, limited(11))
	b.awaitCount("changed", 11)
	await.Until(t, "reported twice in all", func() bool { n, _ := b.reported(); return n >= 2 })
	if n, _ := b.reported(); n != 2 {
		t.Errorf("reported %d times", n)
	}
}

// TestWatchConfigMap swaps the link ..data, as the kubelet does it.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stint.yaml")
	swap := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		disk.Write(t, filepath.Join(dir, name, "stint.yaml"), text)
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("..2026_1", limited(10))
	if err := os.Symlink(filepath.Join("..data", "stint.yaml"), path); err != nil {
		t.Fatal(err)
	}
	b := open(t, path, rules.Options{})
	b.watch()
	swap("..2026_2", limited(11))
	os.RemoveAll(filepath.Join(dir, "..2026_1"))
	b.awaitCount("swapped", 11)
	swap("..2026_3", "rules: [")
	await.Until(t, "swapped for a bad one", func() bool { return b.logged("not reloaded") > 0 })
	swap("..2026_4", limited(12))
	b.awaitCount("swapped again", 12)
}

// TestWatchLink changes a file in another directory, behind a link, and then
// the link.
func TestWatchLink(t *testing.T) {
	near, far, farther := t.TempDir(), t.TempDir(), t.TempDir()
	path := filepath.Join(near, "stint.yaml")
	disk.Write(t, filepath.Join(far, "a.yaml"), limited(10))
	disk.Write(t, filepath.Join(farther, "b.yaml"), limited(12))
	os.Symlink(filepath.Join(far, "a.yaml"), path)
	b := open(t, path, rules.Options{})
	b.watch()
	disk.Write(t, filepath.Join(far, "a.yaml"), limited(11))
	b.awaitCount("behind the link", 11)
	os.Symlink(filepath.Join(farther, "b.yaml"), path+".new")
	os.Rename(path+".new", path)
	b.awaitCount("another link", 12)
	replace(t, filepath.Join(farther, "b.yaml"), limited(13))
	b.awaitCount("behind the other link", 13)
}

// TestWatchDirectory removes the directory and puts it back.
func TestWatchDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	path := filepath.Join(dir, "stint.yaml")
	os.Mkdir(dir, 0o755)
	disk.Write(t, path, limited(10))
	b := open(t, path, rules.Options{})
	b.watch()
	disk.Write(t, path, limited(11))
	b.awaitCount("watched", 11)
	os.RemoveAll(dir)
	await.Until(t, "gone", func() bool { return b.logged("no such file") > 0 })
	os.Mkdir(dir, 0o755)
	disk.Write(t, path, limited(12))
	b.awaitCount("back", 12)
	disk.Write(t, path, limited(13))
	b.awaitCount("watched again", 13)
}
