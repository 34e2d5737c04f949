package main_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

const dailyRules = `rules: [{name: daily, key: [header.x-api-key], limits: ["5 per day sliding_log"]}]`

// TestSnapshot restarts in several ways: what a client has used of a day stays
// used, up to the last save.
func TestSnapshot(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		rules, file := writeFile(t, dir+"/stint.yaml", dailyRules), dir+"/stint.snapshot"
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
		saved := func() time.Time {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			return info.ModTime()
		}
		for range 2 { // the first may have begun before the last request
			for at := saved(); !saved().After(at); time.Sleep(5 * time.Millisecond) {
			}
		}
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

// TestSnapshotRefused starts with what is no snapshot: it says so, does not
// start, and leaves the file as it is.
func TestSnapshotRefused(t *testing.T) {
	dir := t.TempDir()
	rules := writeFile(t, dir+"/stint.yaml", dailyRules)
	s := startServe(t, "-c", rules, "--http", "127.0.0.1:0", "--snapshot", dir+"/good")
	s.ask("/v1/check", `{"attributes":{"header.x-api-key":"partner-1"}}`, "")
	s.stop("allowed=1 denied=0 failed=0")
	good, err := os.ReadFile(dir + "/good")
	if err != nil {
		t.Fatal(err)
	}
	flipped := strings.Clone(string(good[:len(good)-5])) + string(good[len(good)-5]^1) + string(good[len(good)-4:])
	for name, text := range map[string]string{
		"empty": "", "torn": string(good[:len(good)/2]), "flipped": flipped, "other": "rules: []\n",
	} {
		path := writeFile(t, dir+"/"+name, text)
		p := launch(t, "serve", "serve", "-c", rules, "--http", "127.0.0.1:0", "--snapshot", path)
		if err := <-p.ended; err == nil {
			t.Errorf("%s: it ended well", name)
		}
		want := "stint serve: --snapshot: " + path + ": memstore: unusable snapshot: "
		if got := p.log(); !strings.Contains(got, want) || !strings.Contains(got, "the file stays as it is") {
			t.Errorf("%s: it said %q, want %q", name, got, want)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s: %v: the file has changed", name, err)
		}
	}
	p := launch(t, "serve", "serve", "-c", rules, "--http", "127.0.0.1:0", "--snapshot", dir+"/no/such/file")
	if err := <-p.ended; err == nil || !strings.Contains(p.log(), "no such file or directory") {
		t.Errorf("a directory that is not there: %v, %s", err, p.log())
	}
	pipe := dir + "/pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p = launch(t, "serve", "serve", "-c", rules, "--http", "127.0.0.1:0", "--snapshot", pipe)
	if err := <-p.ended; err == nil || !strings.Contains(p.log(), pipe+": not a regular file") {
		t.Errorf("a pipe: %v, %s", err, p.log())
	}
	// The rest of a process that was killed while it saved does no harm.
	writeFile(t, dir+"/good.new", "half of a snapsh")
	s = startServe(t, "-c", rules, "--http", "127.0.0.1:0", "--snapshot", dir+"/good")
	if _, answer := s.ask("/v1/check", `{"attributes":{"header.x-api-key":"partner-1"}}`, ""); !strings.Contains(answer, `"remaining":3`) {
		t.Errorf("%s, want remaining 3", answer)
	}
	s.stop("allowed=1 denied=0 failed=0")
	if _, err := os.Stat(dir + "/good.new"); err == nil {
		t.Error("the half of a snapshot is there still")
	}
}

// TestSnapshotReload changes the count of a limit while it runs, twice, and
// restarts: what was used before stays used.
func TestSnapshotReload(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		rules, file := writeFile(t, dir+"/stint.yaml", dailyRules), dir+"/stint.snapshot"
		p := start("-c", rules, "--snapshot", file)
		if n := p.requests("partner-1", 3); n != 3 {
			t.Fatalf("%d of 3 passed", n)
		}
		for i, limit := range []string{"7 per day sliding_log", "4 per day sliding_log"} {
			writeFile(t, rules, strings.Replace(dailyRules, "5 per day sliding_log", limit, 1))
			for strings.Count(p.log(), "rules: reloaded") <= i {
				time.Sleep(5 * time.Millisecond)
			}
			if err := p.end(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			p = start("-c", rules, "--snapshot", file)
			if s := p.inspect("--header", "x-api-key=partner-1"); s.Rules[0].Limits[0].Remaining != []int64{4, 1}[i] {
				t.Errorf("after %s and a restart: %+v", limit, s.Rules[0].Limits)
			}
			p.mu.Lock()
			p.said.WriteString(strings.Repeat("rules: reloaded ", i+1)) // as the process before said
			p.mu.Unlock()
		}
	})
}
