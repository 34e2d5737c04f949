package atomicfile_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/service/atomicfile"
)

// TestWrite writes, fails half way, and writes again: the file is always one of
// the whole ones, and nothing stays beside it.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put := func(text string, end error) error {
		return atomicfile.Write(path, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return errors.Join(err, end)
		})
	}
	want := func(text string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
		all, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(all) != 1 {
			t.Errorf("%v, %v: want the file alone", all, err)
		}
	}
	if err := put("first", nil); err != nil {
		t.Fatal(err)
	}
	want("first")
	broken := errors.New("broken")
	if err := put("second, ha", broken); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
	want("first")
	disk.Write(t, path+".new", "of a process that was killed, and longer than what comes")
	if err := put("third", nil); err != nil {
		t.Fatal(err)
	}
	want("third")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want 0600", info.Mode(), err)
	}
}

// TestTry tries a path while another write of it is under way, which then ends well,
// and leaves nothing beside it.
func TestTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := atomicfile.Write(path, func(io.Writer) error { return atomicfile.Try(path) }); err != nil {
		t.Error(err)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("%v, %v: want the file alone", all, err)
	}
	if atomicfile.Try(filepath.Join(path, "below a file")) == nil {
		t.Error("a path that cannot be written can be")
	}
}

// TestSpecial writes where something lies that is no regular file: it stays, and
// so does what a link beside it leads to.
func TestSpecial(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, path := range []string{socket, dir} {
		for name, err := range map[string]error{"Write": atomicfile.Write(path, put("x")), "Try": atomicfile.Try(path)} {
			if err == nil || err.Error() != path+": not a regular file" {
				t.Errorf("%s: %v, want that it is not a regular file", name, err)
			}
		}
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().IsRegular() {
		t.Errorf("%v, %v: the socket has gone", info, err)
	}
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	disk.Write(t, other, "precious")
	if err := os.Symlink(other, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, put("whole")); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(other); string(text) != "precious" {
		t.Errorf("what the link leads to has become %q", text)
	}
	if text, _ := os.ReadFile(path); string(text) != "whole" {
		t.Errorf("the file has %q", text)
	}
}

func put(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}
