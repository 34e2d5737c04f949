package plan_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/planner/plan"
	"github.com/stint-dev/stint/cmd/internal/planner/plan/sample"
)

// What does not fit into memory is kept in a file, and read back as it was.
func TestSpool(t *testing.T) {
	var log bytes.Buffer
	requests := 250_000
	if racing {
		requests = 50_000
	}
	if err := sample.Write(&log, sample.Options{Requests: requests, Clients: 2000}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	o := plan.Options{Limits: []string{"30/m"}, Choose: &plan.Target{Share: 0.001}, IgnoreTop: 2}
	whole := planText(t, log.Bytes(), o)
	defer plan.SetSpoolMemory(1)()
	spilled := planText(t, log.Bytes(), o)
	if !reflect.DeepEqual(whole.Results, spilled.Results) || !reflect.DeepEqual(whole.Choice, spilled.Choice) || whole.Log.Ignored == 0 {
		t.Errorf("from memory %+v, from a file %+v", whole.Choice, spilled.Choice)
	}
}
