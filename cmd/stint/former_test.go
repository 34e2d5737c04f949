package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// former is what stands for the version before, until there is one.
const former = "6521b4d8"

// formerLimits are what both builds know, each five a day.
var formerLimits = []string{
	"5 per day", "5 per day token_bucket_interval", "1 per 100000s leaky_queue burst 4", "5 per day fixed_window",
	"5 per week in Europe/Berlin", "5 per day sliding_log", "5 per day sliding_counter", "5 per day sliding_buckets",
	"5 per day sliding_log ban 1h",
}

// TestFormer has two builds, the former and the present one, read and write the same usage,
// as when processes are upgraded one by one, or back again.
func TestFormer(t *testing.T) {
	before := buildFormer(t)
	rules := make([]string, len(formerLimits))
	for i, limit := range formerLimits {
		rules[i] = fmt.Sprintf(`{name: r%d, match: {header.x-api-key: k%d}, key: [header.x-api-key], limits: [%q]}`, i, i, limit)
	}
	file := disk.Write(t, t.TempDir()+"/stint.yaml", "rules: ["+strings.Join(rules, ", ")+"]")
	start := func(t *testing.T, program, flag, value string) *running {
		process := exec.Command(program, "serve", file, "--http", "127.0.0.1:0", flag, value)
		process.Env = append(os.Environ(), "STINT_TEST_MAIN=1", storePatience)
		return begin(t, "serve", process).listening()
	}
	present, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	passes := func(t *testing.T, p *running, n, want int) {
		t.Helper()
		for i, limit := range formerLimits {
			if got := p.requests(fmt.Sprint("k", i), n); got != want {
				t.Errorf("%s: %d of %d passed, want %d", limit, got, n, want)
			}
		}
	}
	for _, order := range [][2]string{{before, present}, {present, before}} {
		t.Run("snapshot", func(t *testing.T) {
			snapshot := t.TempDir() + "/snapshot"
			for i, want := range []int{2, 2, 1} {
				p := start(t, order[i%2], "--snapshot", snapshot)
				passes(t, p, 2, want)
				if err := p.end(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
		})
		t.Run("redis", func(t *testing.T) {
			url := redistest.Start(t).URL()
			one, other := start(t, order[0], "--store", url), start(t, order[1], "--store", url)
			passes(t, one, 2, 2)
			passes(t, other, 2, 2)
			passes(t, one, 2, 1)
			passes(t, other, 1, 0)
		})
	}
}

// buildFormer builds the command as it was. A clone may not have its commit.
func buildFormer(t *testing.T) (program string) {
	t.Helper()
	need.Time(t)
	dir := t.TempDir()
	if out, err := exec.Command(need.Program(t, "git"), "-C", root, "archive", "-o", dir+"/tar", former).CombinedOutput(); err != nil {
		need.Optional(t, fmt.Sprintf("commit %s: %s", former, out))
	}
	build := exec.Command("sh", "-c", "tar xf tar && go build -o stint ./cmd/stint")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir + "/stint"
}
