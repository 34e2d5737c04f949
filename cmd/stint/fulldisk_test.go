package main_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
)

// A smallDisk is a directory on a disk that can be filled. Where none can be mounted,
// the directory goes away instead, and what is written there fails too.
type smallDisk struct {
	*testing.T
	dir     string
	mounted bool
}

func newSmallDisk(t *testing.T) *smallDisk {
	d := &smallDisk{T: t, dir: filepath.Join(t.TempDir(), "disk")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Logf("no small disk can be mounted, so the directory goes away instead: %v", err)
		return d
	}
	d.mounted = true
	t.Cleanup(func() { _ = syscall.Unmount(d.dir, syscall.MNT_DETACH) })
	return d
}

// fill leaves no room, whatever is freed until full says that it was noticed.
func (d *smallDisk) fill(full func() bool) {
	d.Helper()
	if !d.mounted {
		if err := os.Rename(d.dir, d.dir+".gone"); err != nil {
			d.Fatal(err)
		}
	}
	await.Until(d, "somebody notices that the disk is full", func() bool {
		if d.mounted {
			f, err := os.OpenFile(d.dir+"/filler", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				d.Fatal(err)
			}
			for err == nil {
				_, err = f.Write(make([]byte, 1<<12))
			}
			_ = f.Close() // it is full
		}
		return full()
	})
}

// empty makes room again.
func (d *smallDisk) empty() {
	d.Helper()
	err := os.Remove(d.dir + "/filler")
	if !d.mounted {
		err = os.Rename(d.dir+".gone", d.dir)
	}
	if err != nil {
		d.Fatal(err)
	}
}

// actsOnFullDisk sends many acts while there is no room: each is refused, the log has
// a few lines, requests are decided, and acts succeed once there is room.
func (d *smallDisk) actsOnFullDisk(p *running, token string, full func() bool) {
	d.Helper()
	block := func(key string) (int, string) {
		return p.call(http.MethodPut, p.admin+"/v1/block?rule=orders&key="+key, `{"for":"1h"}`, bearer(token))
	}
	if status, answer := block("blocked"); status != http.StatusOK {
		d.Fatalf("%d %s", status, answer)
	}
	if token == "" { // a state file
		p.requests("exhausted", 6)
		p.requests("undone", 6)
		p.call(http.MethodPost, p.admin+"/v1/reset?rule=orders&key=undone", `{}`, nil)
	}
	d.fill(full)
	if token == "" {
		if status, answer := p.call(http.MethodPost, p.admin+"/v1/reset?rule=orders&key=exhausted", `{}`, nil); status != http.StatusServiceUnavailable {
			d.Errorf("a reset on a full disk: %d %s", status, answer)
		}
		if n := p.requests("exhausted", 1); n != 0 {
			d.Error("a reset that was refused is done")
		}
		if status, answer := p.call(http.MethodPost, p.admin+"/v1/undo", `{}`, nil); status != http.StatusServiceUnavailable {
			d.Errorf("an undo on a full disk: %d %s", status, answer)
		}
		if n := p.requests("undone", 6); n != 4 {
			d.Errorf("%d passed, want 4: an undo that was refused is done, or no reset was", n)
		}
	}
	for n := range 60 {
		if status, answer := block(fmt.Sprint("refused-", n)); status != http.StatusServiceUnavailable {
			d.Errorf("an act on a full disk: %d %s", status, answer)
		}
	}
	if n := strings.Count(p.log(), `msg="operators API"`); n < 1 || n > 10 {
		d.Errorf("the log has %d lines on 60 acts", n)
	}
	if p.requests("refused-1", 1) != 1 || p.requests("other", 6) != 4 {
		d.Error("requests are decided in another way than before")
	}
	d.empty()
	await.Until(p.t, "acts are kept again", func() bool { status, _ := block("later"); return status == http.StatusOK })
	for _, key := range []string{"blocked", "later"} {
		await.Until(p.t, key+" is blocked", func() bool { return p.requests(key, 1) == 0 })
	}
}

// TestFullDisk fills the disk of a state file and of snapshots: the server goes on
// deciding, refuses acts, says so in few lines, and needs no restart.
func TestFullDisk(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		d := newSmallDisk(t)
		args := []string{"-c", disk.Write(t, t.TempDir()+"/stint.yaml", operateRules), "--state", d.dir + "/state", "--snapshot", d.dir + "/snapshot", "--snapshot-every", "100ms"}
		p := start(args...)
		d.actsOnFullDisk(p, "", func() bool { return strings.Contains(p.log(), "snapshot: not saved") })
		p.waitFor("snapshot: saved again")
		if n := strings.Count(p.log(), "snapshot: not saved"); n > 2 {
			t.Errorf("the log has %d lines on snapshots", n)
		}
		p.saves(d.dir + "/snapshot")
		_ = p.end(syscall.SIGKILL)
		p = start(args...)
		if p.requests("later", 1) != 0 || p.requests("blocked", 1) != 0 || p.requests("refused-1", 5) != 3 || p.requests("other", 1) != 0 {
			t.Error("after a kill: not what was acknowledged and saved")
		}
	})
}

// TestFullDiskDatabase fills the disk of a database of rules in SQLite, with the
// audit in it.
func TestFullDiskDatabase(t *testing.T) {
	d := newSmallDisk(t)
	if !d.mounted {
		t.Skip("a database that is open does not notice that its directory goes away")
	}
	database := "sqlite:" + d.dir + "/stint.db"
	token := published(t, database, operateRules, "operator")
	p := operated(t, "--rules", database)
	d.actsOnFullDisk(p, token, func() bool {
		status, _ := p.call(http.MethodPut, p.admin+"/v1/block?rule=orders&key=filling", `{"for":"1h"}`, bearer(token))
		return status == http.StatusServiceUnavailable
	})
}

// TestFullDiskOutputs has commands write to a disk with too little room: what was there
// stays whole, a new file does not, and the same command succeeds once there is room.
func TestFullDiskOutputs(t *testing.T) {
	d := newSmallDisk(t)
	if !d.mounted {
		t.Skip("no disk that can be full")
	}
	tokens, report, rules := d.dir+"/tokens", d.dir+"/report.html", d.dir+"/rules.yaml"
	must(t, "token", "make", "first", "--file", tokens)
	text := disk.Read(t, tokens)
	text = append([]byte("# "+strings.Repeat("x", os.Getpagesize()-10-2-1-len(text))+"\n"), text...) // ten bytes short of a page
	disk.Write(t, tokens, string(text))
	disk.Write(t, report, "old")
	d.fill(func() bool { return true })
	commands := [][]string{
		{"token", "make", "second", "--file", tokens},
		{"plan", "testdata/access.log.gz", "--quiet", "--html", report},
		{"plan", "testdata/access.log.gz", "--quiet", "--propose", rules},
	}
	for _, args := range commands {
		if status, _, errs := runStint(t, args...); status != 1 || !strings.Contains(errs, "no space left") {
			t.Errorf("%s: exit status %d, %s", args, status, errs)
		}
	}
	for path, want := range map[string]string{tokens: string(text), report: "old"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v, want %d as before", path, len(got), err, len(want))
		}
	}
	d.empty()
	for _, args := range commands {
		must(t, args...)
	}
	left, err := os.ReadDir(d.dir)
	if err != nil || len(left) != 3 {
		t.Errorf("%v, %v: want 3 files", left, err)
	}
	if got, err := os.ReadFile(report); err != nil || !strings.Contains(string(got), "</html>") {
		t.Errorf("the report: %d bytes, %v", len(got), err)
	}
}
