//go:build unix

package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/service/atomicfile"
)

// TestWriteUnreadableDirectory writes into a directory that may be written and not
// read: it cannot be synced, and the file stays as it was. Root reads everything,
// so that the test runs itself as another user.
func TestWriteUnreadableDirectory(t *testing.T) {
	if dir := os.Getenv("UNREADABLE"); dir != "" {
		writeUnreadable(t, filepath.Join(dir, "file"))
		return
	}
	dir, err := os.MkdirTemp("", "atomicfile")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sub, bin := filepath.Join(dir, "sub"), filepath.Join(dir, "test")
	text, err := os.ReadFile(os.Args[0])
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(bin, text, 0o755), os.Mkdir(sub, 0o700),
		os.WriteFile(filepath.Join(sub, "file"), []byte("old"), 0o600)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(bin, "-test.run", "^TestWriteUnreadableDirectory$")
	c.Env, c.Dir = append(os.Environ(), "UNREADABLE="+sub), dir
	if os.Geteuid() == 0 {
		const nobody = 65534
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		err = errors.Join(os.Chown(sub, nobody, nobody), os.Chown(filepath.Join(sub, "file"), nobody, nobody))
	}
	if err = errors.Join(err, os.Chmod(sub, 0o300)); err != nil {
		t.Fatal(err)
	}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func writeUnreadable(t *testing.T, path string) {
	err := atomicfile.Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "new")
		return err
	})
	got, wrong := os.ReadFile(path)
	if err == nil || wrong != nil || string(got) != "old" {
		t.Errorf("%q, %v after the error %v: want the old file after an error", got, wrong, err)
	}
}
