package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/planner/plan"
)

// steadyLines are of one request a second, of forty clients in turn.
func steadyLines(from, n int) string {
	var b strings.Builder
	for i := from; i < from+n; i++ {
		at := time.Date(2025, 3, 5, 12, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Second)
		fmt.Fprintf(&b, "192.0.2.%d - - [%s] \"GET /%d HTTP/1.1\" 200 5\n", i%40, at.Format("02/Jan/2006:15:04:05 -0700"), i)
	}
	return b.String()
}

// reported plans logs of these texts, written on 6 March 2025.
func reported(t *testing.T, o plan.Options, texts ...string) *plan.Report {
	t.Helper()
	for i, text := range texts {
		name := filepath.Join(t.TempDir(), fmt.Sprint(i))
		disk.Write(t, name, text)
		written := time.Date(2025, 3, 6, 12, 0, 0, 0, time.UTC)
		if err := os.Chtimes(name, written, written); err != nil {
			t.Fatal(err)
		}
		o.Files = append(o.Files, name)
	}
	o.Brief = true
	r, err := plan.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Requests that are dated long after the log was written are said, however many.
func TestFuture(t *testing.T) {
	late := strings.ReplaceAll(steadyLines(0, 500), "/2025:", "/2099:")
	r := reported(t, plan.Options{Limits: []string{"10/m"}}, steadyLines(0, 3000)+late)
	if len(r.Findings) == 0 || r.Findings[0].What != "future" || !strings.Contains(r.Findings[0].Text, "--to 2025-03-07") {
		t.Errorf("%+v", r.Findings)
	}
}
