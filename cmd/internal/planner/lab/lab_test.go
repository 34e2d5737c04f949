package lab_test

import (
	"flag"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/settled"
)

var update = flag.Bool("update", false, "write the golden files and the screenshots of docs/LAB.md")

func TestMain(m *testing.M) { settled.Main(m) }
