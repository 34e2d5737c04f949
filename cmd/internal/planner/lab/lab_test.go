package lab_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files and the screenshots of docs/LAB.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
