package memstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// used returns a store in which every kind has been used, and its clock.
func used(t *testing.T) (*memstore.Store, *clock) {
	s, c := storeAt(1_000_000*time.Hour+time.Minute, memstore.Options{})
	for _, text := range everyKind {
		l := limiter(t, s, text)
		for i := range 50 {
			for range i % 4 {
				allow(t, l, fmt.Sprint(i))
			}
			c.advance(time.Millisecond)
		}
	}
	return s, c
}

// answerAlike holds that a store answers what another does for the keys of used.
func answerAlike(t *testing.T, want, got *memstore.Store) {
	t.Helper()
	for _, text := range everyKind {
		a, b := limiter(t, want, text), limiter(t, got, text)
		for i := range 50 {
			if w, g := taken(t, a, fmt.Sprint(i), 1), taken(t, b, fmt.Sprint(i), 1); g != w {
				t.Fatalf("%s, key %d:\n got %+v\nwant %+v", text, i, g, w)
			}
		}
	}
}

// TestSnapshot carries every kind over to another store.
func TestSnapshot(t *testing.T) {
	s, c := used(t)
	path := filepath.Join(t.TempDir(), "stint.snapshot")
	if err := s.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	next := memstore.New(memstore.Options{MaxKeys: 4096, Now: c.now}) // with fewer shards
	if err := next.LoadFile(path); err != nil {
		t.Fatal(err)
	}
	answerAlike(t, s, next)
}

// TestSnapshotChanged binds a limit that has changed since it was saved.
func TestSnapshotChanged(t *testing.T) {
	s, c := storeAt(time.Hour, memstore.Options{})
	taken(t, under(t, s, "api", limit(t, "100/1h")), "a", 100)
	next := restarted(t, s, memstore.Options{Now: c.now})
	l := under(t, next, "api", limit(t, "10/1h"))
	if d, _ := l.Peek(ctx, "a", 1); d.Remaining != 0 || d.ResetAfter != time.Hour {
		t.Errorf("%+v, want none remaining, and all of 10 in use", d)
	}
}

// TestSnapshotTorn cuts and bends a snapshot everywhere: each is refused with
// a word, and the store is empty and works.
func TestSnapshotTorn(t *testing.T) {
	s, c := used(t)
	file := saved(t, s)
	whole := file.Bytes()
	refuse := func(what string, b []byte) {
		t.Helper()
		next := memstore.New(memstore.Options{Now: c.now})
		if err := next.Load(bytes.NewReader(b)); !errors.Is(err, memstore.ErrSnapshot) {
			t.Fatalf("%s: %v", what, err)
		}
		if l := limiter(t, next, "3/1h"); !allow(t, l, "3") {
			t.Fatalf("%s: the store is not empty", what)
		}
	}
	for n := 0; n < len(whole); n += 1 + n/20 {
		refuse(fmt.Sprintf("cut at %d", n), whole[:n])
		bent := bytes.Clone(whole)
		bent[n] ^= 0x10
		refuse(fmt.Sprintf("bent at %d", n), bent)
	}
	refuse("another file", []byte("%PDF-1.7 and so on, long enough to be read"))
}

func TestSnapshotRefused(t *testing.T) {
	s, _ := used(t)
	file := saved(t, s)
	if err := s.Load(bytes.NewReader(file.Bytes())); err == nil || errors.Is(err, memstore.ErrSnapshot) {
		t.Errorf("into a store in use: %v", err)
	}
	if err := memstore.New(memstore.Options{MaxKeys: 3}).Load(file); err == nil || errors.Is(err, memstore.ErrSnapshot) {
		t.Errorf("into a store too small: %v", err)
	}
	if err := s.LoadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if err := s.SaveFile(filepath.Join(t.TempDir(), "none", "file")); err == nil {
		t.Error("saved into a folder that is not there")
	}
}

// TestSnapshotSpecial saves and loads where something lies that is no regular
// file: it is an error, and stays.
func TestSnapshotSpecial(t *testing.T) {
	s, _ := used(t)
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	want := "memstore: " + path + ": not a regular file"
	if err := s.SaveFile(path); err == nil || err.Error() != want {
		t.Errorf("SaveFile: %v, want %q", err, want)
	}
	if err := memstore.New(memstore.Options{}).LoadFile(path); err == nil || err.Error() != want {
		t.Errorf("LoadFile: %v, want %q", err, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
		t.Errorf("%v, %v: the socket has gone", info, err)
	}
}

// TestSaveAfterClose holds that a store that was closed leaves a good file as
// it is.
func TestSaveAfterClose(t *testing.T) {
	s, _ := used(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "stint.snapshot")
	if err := s.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	good, _ := os.ReadFile(path)
	s.Close()
	if err := s.SaveFile(path); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("SaveFile after Close: %v", err)
	}
	if err := s.Save(io.Discard); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("Save after Close: %v", err)
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, good) {
		t.Errorf("the file of %d bytes has become one of %d", len(good), len(now))
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files, want the snapshot alone", len(files))
	}
	if err := s.Load(bytes.NewReader(good)); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("Load after Close: %v", err)
	}
}

// closing closes a store when the first bytes of a snapshot are written.
type closing struct{ s *memstore.Store }

func (c closing) Write(b []byte) (int, error) {
	c.s.Close()
	return len(b), nil
}

func TestCloseDuringSave(t *testing.T) {
	s := memstore.New(memstore.Options{Now: new(clock).now})
	l := limiter(t, s, "1/1h")
	for i := range 20_000 { // more than Save writes at once
		allow(t, l, fmt.Sprint(i))
	}
	if err := s.Save(closing{s}); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("%v, want ErrClosed: the rest of the keys was gone", err)
	}
}

// TestSnapshotUnbound carries a limit that is not bound yet through two saves.
func TestSnapshotUnbound(t *testing.T) {
	s, c := used(t)
	last := s
	for range 3 {
		last = restarted(t, last, memstore.Options{Now: c.now})
		limiter(t, last, everyKind[0])
	}
	answerAlike(t, s, last)
}

// TestSnapshotUnboundForgets drops a limit that is no longer bound once its keys
// no longer count, so that files do not grow for ever.
func TestSnapshotUnboundForgets(t *testing.T) {
	s, c := used(t)
	next := restarted(t, s, memstore.Options{Now: c.now})
	c.advance(48 * time.Hour)
	later := saved(t, next)
	empty := saved(t, memstore.New(memstore.Options{}))
	if later.Len() != empty.Len() {
		t.Errorf("%d bytes, want the %d of an empty store", later.Len(), empty.Len())
	}
}

// TestSnapshotKinds loads keys of every kind for a limit that has become every
// other kind, in a store with no room for logs and parts: all goes on.
func TestSnapshotKinds(t *testing.T) {
	for _, from := range everyKind {
		for _, to := range everyKind {
			s, c := storeAt(time.Hour, memstore.Options{})
			l := under(t, s, "api", limit(t, from).WithName("api"))
			for i := range 20 {
				taken(t, l, fmt.Sprint(i), 1)
			}
			next := restarted(t, s, memstore.Options{MaxBytes: 1, Now: c.now})
			l = under(t, next, "api", limit(t, to).WithName("api"))
			for i := range 60 {
				if _, err := l.Take(ctx, fmt.Sprint(i%30), 1); err != nil {
					t.Fatalf("%s, then %s: %v", from, to, err)
				}
			}
		}
	}
}

// TestSnapshotLater refuses a snapshot of a later version by name.
func TestSnapshotLater(t *testing.T) {
	file := saved(t, memstore.New(memstore.Options{}))
	whole := file.Bytes()
	whole[8] = 99
	err := memstore.New(memstore.Options{}).Load(bytes.NewReader(whole))
	if !errors.Is(err, memstore.ErrSnapshot) || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("%v", err)
	}
}

// TestSnapshotCells carries what newcomers of a full store have used together
// to stores with as many shards and with more.
func TestSnapshotCells(t *testing.T) {
	for _, text := range everyKind {
		s, c := storeAt(1_000_000*time.Hour, memstore.Options{MaxKeys: 1 << 12})
		l := limiter(t, s, text)
		for i := range 1 << 13 {
			allow(t, l, fmt.Sprint("old", i))
		}
		if s.Stats().Overflowed == 0 {
			t.Fatal("not full")
		}
		for i := range 100 {
			for range 5 {
				allow(t, l, fmt.Sprint("newcomer", i))
			}
		}
		file := saved(t, s)
		for _, keys := range []int{1 << 12, 1 << 14, 1 << 20} {
			o := memstore.Options{MaxKeys: keys, Now: c.now}
			next := loaded(t, file.Bytes(), o)
			if keys == 1<<14 { // once more through a file, not bound
				next = restarted(t, next, o)
			}
			m := limiter(t, next, text)
			for i := range 100 {
				want, _ := l.Peek(ctx, fmt.Sprint("newcomer", i), 1)
				if got, err := m.Peek(ctx, fmt.Sprint("newcomer", i), 1); err != nil || got != want {
					t.Fatalf("%s, %d keys, newcomer %d:\n got %+v, %v\nwant %+v", text, keys, i, got, err, want)
				}
			}
		}
	}
}
