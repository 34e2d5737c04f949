package lab_test

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint/internal/leaktest"
	"github.com/stint-dev/stint/planner/lab"
)

var update = flag.Bool("update", false, "write the golden files and the screenshots of docs/LAB.md")

func TestMain(m *testing.M) {
	lab.SetPatience(5 * time.Minute) // under the race detector, beside other tests
	leaktest.Main(m, goleak.Find)
}
