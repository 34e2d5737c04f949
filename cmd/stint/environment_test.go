package main_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
)

// TestNoAdminAddress: a server that has no API says so.
func TestNoAdminAddress(t *testing.T) {
	front := httptest.NewServer(http.NotFoundHandler())
	defer front.Close()
	var out, errs bytes.Buffer
	if status := main.Run(t.Context(), []string{"top", "--server", front.URL}, strings.NewReader(""), &out, &errs); status != 1 || !strings.Contains(errs.String(), "answered 404 Not Found, and not as the --admin address of a stint does") {
		t.Errorf("%d: %s", status, &errs)
	}
}

// TestVariables: a variable whose name is nearly that of a flag gets a warning, and a wrong address
// says which variable it is from. A service of Kubernetes may be called stint, too.
func TestVariables(t *testing.T) {
	for _, c := range []struct{ name, value, command, want string }{
		{"STINT_STROE", "redis://127.0.0.1:1", "serve", "stint serve: warning: no flag reads $STINT_STROE: did you mean $STINT_STORE?"},
		{"STINT_UPSTERAM", "http://127.0.0.1:1", "proxy", "did you mean $STINT_UPSTREAM?"},
		{"STINT_STROE", "redis://127.0.0.1:1", "doctor", "did you mean $STINT_STORE?"},
		{"STINT_SERVICE_HOST", "10.0.0.1", "serve", ""},
		{"STINT_PORT_9090_TCP", "tcp://10.0.0.1:9090", "serve", ""},
		{"STINT_STROE", "redis://127.0.0.1:1", "version", ""},
		{"STINT_HTTP", "nowhere", "serve --limit 1/s", "stint serve: --http ($STINT_HTTP): nowhere: an address has a host and a port"},
	} {
		t.Run(c.name+" "+c.command, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			var out, errs bytes.Buffer
			main.Run(t.Context(), strings.Fields(c.command), strings.NewReader(""), &out, &errs)
			if got := errs.String(); !strings.Contains(got, c.want) || (c.want == "") == strings.Contains(got, "$STINT") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
