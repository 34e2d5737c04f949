package main_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	main "github.com/stint-dev/stint/cmd/stint"
)

// The page is written beside the report.
func TestPlanPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	out := must(t, "plan", "--json", "--limit", "30/m", "--html", page, "testdata/access.log.gz")
	text, err := os.ReadFile(page)
	if err != nil || !strings.HasPrefix(string(text), "<!DOCTYPE html>") || !strings.HasSuffix(string(text), "</html>\n") {
		t.Errorf("%v: %.80s", err, text)
	}
	report := decode[struct {
		Results []struct {
			Limit, Key                string
			Requests, Allowed, Denied int64
			FirstDenial               *time.Time `json:"first_denial"`
			Top                       []map[string]any
		}
	}](t, out)
	if r := report.Results[0]; r.Limit != "30/m" || r.Key != "ip" || r.Requests != r.Allowed+r.Denied || r.FirstDenial == nil || len(r.Top) != 1 {
		t.Errorf("%+v", r)
	}
}

// One who interrupts gets what was read, and a status that says that it is not
// all.
func TestPlanInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out, errs bytes.Buffer
	status := main.Run(ctx, []string{"plan", "--limit", "30/m", "testdata/access.log.gz"}, nil, &out, &errs)
	if status != 1 || !strings.Contains(out.String(), "Interrupted") || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit %d: %s%s", status, &out, &errs)
	}
	file := filepath.Join(t.TempDir(), "stint.yaml")
	errs.Reset()
	if status := main.Run(ctx, []string{"plan", "--propose", file, "testdata/access.log.gz"}, nil, &out, &errs); status != 1 || errs.String() != "stint plan: interrupted: nothing is proposed\n" {
		t.Errorf("--propose: exit %d: %s", status, &errs)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("--propose: a file is left")
	}
}

func TestPlanProgress(t *testing.T) {
	for _, test := range []struct {
		read, of int64
		took     time.Duration
		want     string
	}{
		{50e6, 200e6, 2 * time.Second, "reading ███████░░░░░░░░░░░░░░░░░░░░░░░  25%, 25 MB/s, 6s left"},
		{200e6, 200e6, 2 * time.Second, "reading ██████████████████████████████ 100%, 100 MB/s, 0s left"},
		{50e6, 0, 2 * time.Second, "reading 50 MB, 25 MB/s"},
		{0, 100, 0, "reading ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░   0%, 0 MB/s, 1m40s left"},
	} {
		if got := main.ProgressLine("reading", test.read, test.of, test.took); got != test.want {
			t.Errorf("%d of %d: %q, want %q", test.read, test.of, got, test.want)
		}
	}
}
