package main_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
)

const dailyRules = `rules: [{name: daily, key: [header.x-api-key], limits: ["5 per day sliding_log"]}]`

// saves waits for a snapshot that has what was decided so far.
func (p *running) saves(file string) {
	p.t.Helper()
	saved := func() time.Time {
		info, err := os.Stat(file)
		if err != nil {
			p.t.Fatal(err)
		}
		return info.ModTime()
	}
	for range 2 { // the first may have begun before the last request
		at := saved()
		await.Until(p.t, "a snapshot is saved", func() bool { return saved().After(at) })
	}
}

// TestSnapshot restarts in several ways: what a client has used of a day stays
// used, up to the last save.
func TestSnapshot(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		rules, file := disk.Write(t, dir+"/stint.yaml", dailyRules), dir+"/stint.snapshot"
		p := start("-c", rules, "--snapshot", file)
		if n := p.requests("partner-1", 3); n != 3 {
			t.Fatalf("%d of 3 passed", n)
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p = start("-c", rules, "--snapshot", file, "--snapshot-every", "100ms")
		if n := p.requests("partner-1", 1) + p.requests("partner-2", 1); n != 2 {
			t.Errorf("after SIGTERM: %d of 2 passed", n)
		}
		p.saves(file)
		if err := p.end(syscall.SIGKILL); err == nil {
			t.Error("it ended by itself")
		}
		p = start("-c", rules, "--snapshot", file)
		if n := p.requests("partner-1", 4); n != 1 {
			t.Errorf("after a kill: %d passed, want 1", n)
		}
		if n := p.requests("partner-2", 6); n != 4 {
			t.Errorf("after a kill: %d of another client passed, want 4", n)
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v: want mode 0600", info.Mode(), err)
		}
	})
}

// TestFilesRefused starts with what is no snapshot, or no state file: it says so, does not
// start, and leaves the file as it is.
func TestFilesRefused(t *testing.T) {
	dir := t.TempDir()
	rules := disk.Write(t, dir+"/stint.yaml", dailyRules)
	p := operated(t, "-c", rules, "--snapshot", dir+"/good", "--state", dir+"/state")
	p.requests("partner-1", 1)
	if status, _, errs := p.stint("block", "partner-2", "--rule", "daily"); status != 0 {
		t.Fatal(errs)
	}
	p.stop("allowed=1 denied=0 failed=0")
	pipe := dir + "/pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(flag, path, want string) {
		t.Helper()
		before, _ := os.ReadFile(path)
		p := launch(t, "serve", "-c", rules, "--http", "127.0.0.1:0", flag, path)
		if err := <-p.ended; err == nil || !strings.Contains(p.log(), want) {
			t.Errorf("%s %s: %v %s, want %q", flag, path, err, p.log(), want)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, before) {
			t.Errorf("%s: the file has changed", path)
		}
	}
	for flag, file := range map[string]struct{ good, want string }{
		"--snapshot": {dir + "/good", "memstore: unusable snapshot: "}, "--state": {dir + "/state", "unusable state: "},
	} {
		text := disk.Read(t, file.good)
		good, at := string(text), len(text)-5
		for name, bad := range map[string]string{"empty": "", "torn": good[:len(good)/2], "other": "rules: []\n", "flipped": good[:at] + string(good[at]^1) + good[at+1:]} {
			path := disk.Write(t, dir+"/"+name, bad)
			refused(flag, path, "stint serve: "+flag+": "+path+": "+file.want)
		}
	}
	refused("--snapshot", dir+"/no/such/file", "no such file or directory")
	p = launch(t, "serve", "-c", rules, "--http", "127.0.0.1:0", "--snapshot", pipe)
	if err := <-p.ended; err == nil || !strings.Contains(p.log(), pipe+": not a regular file") {
		t.Errorf("a pipe: %v, %s", err, p.log())
	}
	// The rest of a process that was killed while it saved does no harm.
	disk.Write(t, dir+"/good.new", "half of a snapsh")
	p = operated(t, "-c", rules, "--snapshot", dir+"/good")
	if n := p.requests("partner-1", 5); n != 4 {
		t.Errorf("%d passed, want 4", n)
	}
	p.stop("allowed=4 denied=1 failed=0")
	if _, err := os.Stat(dir + "/good.new"); err == nil {
		t.Error("the half of a snapshot is there still")
	}
}

// TestOneStateFile: of two processes with one state file, the second changes nothing,
// and says who has it. Once that one has ended, what it kept is in force at the other,
// and nothing is lost.
func TestOneStateFile(t *testing.T) {
	file := disk.Write(t, t.TempDir()+"/stint.yaml", operateRules)
	start := func() *running { return operated(t, "-c", file) }
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
	rules, file := disk.Write(t, dir+"/stint.yaml", dailyRules), dir+"/stint.snapshot"
	start := func() *running { return operated(t, "-c", rules, "--snapshot", file, "--snapshot-every", "100ms") }
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
