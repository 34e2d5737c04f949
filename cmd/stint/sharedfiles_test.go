package main_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestOneStateFile: of two processes with one state file, the second changes nothing,
// and says who has it. Once that one has ended, what it kept is in force at the other,
// and nothing is lost.
func TestOneStateFile(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/stint.yaml", operateRules)
	start := func() *running {
		p := operated(t, "-c", file)
		return p
	}
	do := func(p *running, want int, line string) string {
		t.Helper()
		status, out, errs := p.stint(strings.Fields(line)...)
		if status != want {
			t.Errorf("%s: exit %d, want %d: %s%s", line, status, want, out, errs)
		}
		return out + errs
	}
	first := start()
	do(first, 0, "block early --rule orders")
	second := start()
	second.waitFor("operators can change nothing here while another process keeps what they do in the same file")
	second.waitFor(fmt.Sprintf("process %d on ", first.process.Process.Pid))
	if said := do(second, 1, "block lost --rule orders"); !strings.Contains(said, "nothing has changed") {
		t.Error(said)
	}
	do(second, 1, "reset orders early")
	do(first, 0, "block kept --rule orders")
	if err := first.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	do(second, 0, "block late --rule orders")
	if out := do(second, 0, "block list"); strings.Count(out, " block") != 3 || strings.Contains(out, "lost") {
		t.Errorf("blocked: %s, want early, kept and late", out)
	}
	if n := second.requests("kept", 1); n != 0 {
		t.Error("what the first kept is not in force")
	}
	if err := second.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if out := do(start(), 0, "block list"); strings.Count(out, " block") != 3 {
		t.Errorf("after a restart: %s", out)
	}
}

// TestOneSnapshot: of two processes with one snapshot, the second does not overwrite
// that of the first, and says so; it saves once the first has ended.
func TestOneSnapshot(t *testing.T) {
	dir := t.TempDir()
	rules, file := writeFile(t, dir+"/stint.yaml", dailyRules), dir+"/stint.snapshot"
	start := func() *running {
		p := operated(t, "-c", rules, "--snapshot", file, "--snapshot-every", "100ms")
		return p
	}
	first := start()
	second := start()
	second.waitFor(fmt.Sprintf("process %d on ", first.process.Process.Pid))
	if n := first.requests("partner-1", 3) + second.requests("partner-1", 5); n != 8 {
		t.Fatalf("%d of 8 passed", n)
	}
	if err := first.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	second.waitFor("snapshot: saved again")
	if err := second.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if n := start().requests("partner-1", 1); n != 0 {
		t.Error("what the second had is lost")
	}
}

// TestSnapshotUnwritable: a place that cannot be written is said at the start, not when
// the snapshot is due.
func TestSnapshotUnwritable(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("without /proc no directory is one that root cannot write")
	}
	p := launch(t, "serve", "serve", "-c", writeFile(t, t.TempDir()+"/stint.yaml", dailyRules), "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--snapshot", "/proc/self/stint.snapshot", "--snapshot-every", "1h")
	p.listening()
	p.waitFor("snapshot: it cannot be saved")
	if p.end(syscall.SIGTERM) == nil {
		t.Error("a snapshot that is not saved is no success")
	}
	if n := strings.Count(p.log(), "snapshot: not saved"); n != 0 {
		t.Errorf("it is said %d times more", n)
	}
}
