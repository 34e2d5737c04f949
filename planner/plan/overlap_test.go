package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
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

// A log that begins within another is found; two of different servers are none.
func TestOverlap(t *testing.T) {
	r := reported(t, plan.Options{Choose: &plan.Target{}}, steadyLines(0, 3000), steadyLines(2000, 3000))
	if len(r.Findings) == 0 || r.Findings[0].What != "overlap" || !r.Refused() {
		t.Errorf("%+v", r.Findings)
	}
	other := strings.ReplaceAll(steadyLines(2000, 3000), "GET", "PUT")
	if r := reported(t, plan.Options{Choose: &plan.Target{}}, steadyLines(0, 3000), other); len(r.Findings) > 0 || r.Refused() {
		t.Errorf("of another server: %+v", r.Findings)
	}
	if r := reported(t, plan.Options{Choose: &plan.Target{}}, steadyLines(0, 3000), steadyLines(3000, 3000)); len(r.Findings) > 0 {
		t.Errorf("one after another: %+v", r.Findings)
	}
}

// Requests that are dated long after the log was written are said, however many.
func TestFuture(t *testing.T) {
	late := strings.ReplaceAll(steadyLines(0, 500), "/2025:", "/2099:")
	r := reported(t, plan.Options{Limits: []string{"10/m"}}, steadyLines(0, 3000)+late)
	if len(r.Findings) == 0 || r.Findings[0].What != "future" || !strings.Contains(r.Findings[0].Text, "--to 2025-03-07") {
		t.Errorf("%+v", r.Findings)
	}
}

// An hour that clocks showed twice is two hours, where times have no zone.
func TestClocksSetBack(t *testing.T) {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Skip(err)
	}
	var b strings.Builder
	b.WriteString("time,ip\n")
	begin := time.Date(2024, 10, 26, 22, 0, 0, 0, time.UTC)
	for i := range 6 * 3600 {
		at := begin.Add(time.Duration(i) * time.Second)
		if i%100 == 7 { // a little out of order
			at = at.Add(-20 * time.Second)
		}
		fmt.Fprintf(&b, "%s,192.0.2.%d\n", at.In(paris).Format("2006-01-02 15:04:05"), i%40)
	}
	r := reported(t, plan.Options{Limits: []string{"4/2m"}, Zone: paris}, b.String())
	if r.Results[0].Denied != 0 || len(r.Findings) > 0 {
		t.Errorf("%d denied, %+v", r.Results[0].Denied, r.Findings)
	}
	if r := reported(t, plan.Options{Limits: []string{"4/2m"}}, b.String()); r.Results[0].Denied == 0 {
		t.Error("read in a zone without it, the hour is not doubled")
	}
}
