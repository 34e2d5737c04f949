package plan_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/plan"
	"github.com/stint-dev/stint/cmd/internal/planner/plan/sample"
)

// Of a file, only what holds the clients is read for the evidence on them; of a
// pipe, all is. Both say the same, whatever the order of the lines, of all
// requests and of some.
func TestEvidenceByMoments(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	defer plan.SetWorthwhile(1 << 20)()
	var log bytes.Buffer
	requests := 40_000
	if racing {
		requests = 20_000
	}
	if err := sample.Write(&log, sample.Options{Requests: requests, Clients: 2000}); err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(log.Bytes(), []byte("\n"))
	half := len(lines) / 2
	turned := append(append([][]byte{}, lines[half:]...), lines[:half]...)
	day := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for name, lines := range map[string][][]byte{"in order": lines, "turned": turned} {
		text := bytes.Join(lines, nil)
		file := filepath.Join(t.TempDir(), "access.log")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		for i, o := range []plan.Options{
			{}, {IgnoreTop: 1}, {Match: []string{"path=/api/**", "path=/static/**"}},
			{From: day("2025-03-03T12:00:00Z"), To: day("2025-03-04T06:00:00Z")},
			{Choose: &plan.Target{Share: 0.01, Requests: true}}, {Limits: []string{"30/m"}},
		} {
			if leftOut(i) {
				continue
			}
			if o.Choose == nil {
				o.Choose = &plan.Target{Share: 0.002}
			}
			want := planText(t, text, o)
			o.Files = []string{file}
			got, err := plan.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if want.Choice == nil || len(want.Choice.Would.Top) == 0 || want.Choice.Would.Top[0].Evidence == nil {
				t.Fatalf("%s, %+v: nothing to compare: %+v", name, o, want.Findings)
			}
			if !reflect.DeepEqual(got.Choice.Would.Top, want.Choice.Would.Top) || !reflect.DeepEqual(got.Results, want.Results) {
				t.Errorf("%s, %+v: %+v\nwant %+v", name, o, got.Choice.Would.Top[0].Evidence, want.Choice.Would.Top[0].Evidence)
			}
		}
	}
}
