package plan_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/planner/plan"
)

// What is found does not depend on how many cores share the work: of one log and
// of several, in order or sorted, with clients left out, by files and by a pipe.
func TestCores(t *testing.T) {
	dir := t.TempDir()
	var text bytes.Buffer
	if err := writeSample(&text, sampleOptions{Requests: 6000, Clients: 400}); err != nil {
		t.Fatal(err)
	}
	log := text.Bytes()
	middle := len(log)/2 + bytes.IndexByte(log[len(log)/2:], '\n') + 1
	write := func(name string, text ...[]byte) string {
		file := filepath.Join(dir, name)
		disk.Write(t, file, string(bytes.Join(text, nil)))
		return file
	}
	whole, early, late := write("whole.log", log), write("early.log", log[:middle]), write("late.log", log[middle:])
	turned := write("turned.log", log[middle:], log[:middle])
	full := plan.Options{Limits: []string{"30/m", "2/s burst 20"}, Choose: &plan.Target{Share: 0.01}}
	for name, test := range map[string]struct {
		files []string
		alter func(o *plan.Options)
	}{
		"one":      {[]string{whole}, func(*plan.Options) {}},
		"two":      {[]string{late, early}, func(o *plan.Options) { o.Brief = true }},
		"sorted":   {[]string{turned}, func(*plan.Options) {}},
		"left out": {[]string{whole}, func(o *plan.Options) { o.IgnoreKeys = []string{"198.51.100.0/24"} }},
		"requests": {[]string{early}, func(o *plan.Options) { o.Choose = &plan.Target{Share: 0.01, Requests: true} }},
		"a pipe":   {[]string{"-"}, func(*plan.Options) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := ""
			for _, cores := range []int{1, 2, 5} {
				func() {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
					o := full
					o.Files, o.Stdin = test.files, bytes.NewReader(log)
					test.alter(&o)
					report, err := plan.Run(t.Context(), o)
					if err != nil {
						t.Fatal(err)
					}
					got, err := json.Marshal(report)
					if err != nil {
						t.Fatal(err)
					}
					if want == "" {
						want = string(got)
					}
					if string(got) != want {
						t.Errorf("%d cores:\n%s\nwant\n%s", cores, got, want)
					}
				}()
			}
		})
	}
}
