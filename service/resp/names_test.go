package resp_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/service/resp"
)

// TestHeaderNames counts a header under one name, in whatever case it comes, as /v1 does.
func TestHeaderNames(t *testing.T) {
	address, _ := start(t, resp.Options{})
	got := talk(t, address, "STINT.CHECK header.X-Api-Key a\r\nSTINT.CHECK header.x-api-key a\r\nSTINT.CHECK header.x-api-key a HEADER.X-API-KEY b\r\nQUIT\r\n")
	if strings.Count(got, "allowed\r\n:0") != 1 || !strings.Contains(got, "an attribute twice") {
		t.Errorf("a client twice, and a header twice: %q; want it denied once, and one error", got)
	}
}
