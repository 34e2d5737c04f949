package rulesapi_test

import (
	"testing"

	"github.com/stint-dev/stint/service/rulesapi"
)

func TestDiff(t *testing.T) {
	got := rulesapi.Diff("revision 1", "stint.yaml", "a\nb\nc\n", "a\nx\nc")
	want := "--- revision 1\n+++ stint.yaml\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+x\n+c\n\\ No newline at end of file\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := rulesapi.Diff("a", "b", "same", "same"); got != "" {
		t.Errorf("the same text: %q", got)
	}
}
