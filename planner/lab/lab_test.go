package lab_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/planner/lab"
)

func TestMain(m *testing.M) {
	lab.SetPatience(5 * time.Minute) // under the race detector, beside other tests
	leaktest.Main(m, goleak.Find)
}
