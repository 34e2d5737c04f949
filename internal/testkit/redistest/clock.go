package redistest

import (
	_ "embed" // of clockSource
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
)

//go:embed clock/clock.c
var clockSource []byte

// A Clock is the time of day of a server, which a test steps while it runs.
type Clock struct {
	file   *os.File
	offset time.Duration
}

// StartClock starts a server whose time of day is stepped by the Clock: its
// TIME, and what its keys expire by. That takes Linux and gcc, without which the
// test is skipped.
//
// (Debian's libfaketime does not go with Debian's redis-server: it needs memory
// to read the time, of an allocator that needs the time to have memory.)
func StartClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	c, env := NewClock(t)
	s := start(t, t.TempDir(), args, env...)
	before := s.time(t)
	c.Step(t, time.Hour)
	after := s.time(t)
	c.Step(t, -time.Hour)
	if d := after.Sub(before); d < time.Hour || d > time.Hour+time.Minute {
		t.Fatalf("a step of an hour took the server from %v to %v: its clock is another", before, after)
	}
	return s, c
}

// NewClock returns a Clock, and the environment of the servers that go by it.
func NewClock(t testing.TB) (c *Clock, env []string) {
	t.Helper()
	dir := t.TempDir()
	library := buildClock(t, dir)
	file, err := os.Create(filepath.Join(dir, "offset"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	c = &Clock{file: file}
	c.write(t)
	return c, []string{"LD_PRELOAD=" + library, "STINT_CLOCK=" + file.Name()}
}

// buildClock compiles the library that stands between the server and the time.
func buildClock(t testing.TB, dir string) string {
	t.Helper()
	gcc := need.Program(t, "gcc")
	if runtime.GOOS != "linux" {
		need.Missing(t, "Linux, to step a server's clock")
	}
	library := filepath.Join(dir, "clock.so")
	cc := exec.Command(gcc, "-shared", "-fPIC", "-O1", "-o", library, "-x", "c", "-")
	cc.Stdin = strings.NewReader(string(clockSource))
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return library
}

// Step moves the server's time of day, at once.
func (c *Clock) Step(t testing.TB, by time.Duration) {
	t.Helper()
	c.offset += by
	c.write(t)
}

func (c *Clock) write(t testing.TB) {
	t.Helper()
	var ns [8]byte
	binary.NativeEndian.PutUint64(ns[:], uint64(c.offset))
	if _, err := c.file.WriteAt(ns[:], 0); err != nil {
		t.Fatal(err)
	}
}

// time returns what the server says that it is.
func (s *Server) time(t testing.TB) time.Time {
	t.Helper()
	var seconds, micros int64
	out := s.CLI(t, "time")
	if _, err := fmt.Sscan(out, &seconds, &micros); err != nil {
		t.Fatalf("TIME says %q: %v", out, err)
	}
	return time.Unix(seconds, micros*1000)
}
