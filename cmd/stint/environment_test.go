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
		{"STINT_TRUSTED_PROXIES", "10.0.0.1", "serve", "no flag reads $STINT_TRUSTED_PROXIES: stint serve --help-all names those of each flag"},
		{"STINT_PORT", "8080", "serve", "no flag reads $STINT_PORT"},
		{"STINT_PORT", "tcp://10.0.0.1:9090", "serve", ""},
		{"STINT_ADMIN_SERVICE_PORT_HTTP", "9090", "serve", ""},
		{"STINT_ADMIN_PORT_9090_TCP_ADDR", "10.0.0.1", "serve", ""},
		{"STINT_STORE", "", "serve --limit 1/s --http nowhere", "stint serve: warning: $STINT_STORE is empty, which is as if it were not set\nstint serve: --http: nowhere"},
		{"STINT_CONFIG", "", "serve --rules nosuch:db", "stint serve: --rules: "},
		{"STINT_DIALECT", "", "serve --limit 1/s --http nowhere", "stint serve: --http: nowhere"},
		{"STINT_RULES_COPY", "rules", "serve --limit 1/s --http nowhere", ""},
		{"STINT_STROE", "x", "serve --log-format json --limit 1/s --http nowhere", `"level":"WARN","msg":"no flag reads $STINT_STROE`},
		{"STINT_CONFIG", "none.yaml", "explain --rules sqlite:none.db", "stint explain: --rules: sqlite:none.db is not there"},
		{"STINT_RULES", "sqlite:none.db", "explain -c none.yaml", "stint explain: none.yaml: no such file"},
		{"STINT_SERVER", "http://127.0.0.1:1", "rehearse testdata/database/one.yaml --log none.log", "stint rehearse: none.log: no such file"},
		{"STINT_SNAPSHOT_EVERY", "5s", "serve", "warning: --snapshot-every ($STINT_SNAPSHOT_EVERY) has no effect without --snapshot"},
		{"STINT_NEW_KEYS", "5", "serve --limit 1/s --http nowhere", "--new-keys ($STINT_NEW_KEYS) has no effect without a store"},
		{"STINT_LOG_SAMPLE", "nosuch=10%", "serve --limit 1/s --http nowhere", "there is no rule by this name\" rule=nosuch"},
		{"STINT_HTTP", "nowhere", "serve --limit 1/s", "stint serve: --http ($STINT_HTTP): nowhere: an address has a host and a port"},
	} {
		t.Run(c.name+" "+c.command, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			var out, errs bytes.Buffer
			main.Run(t.Context(), strings.Fields(c.command), strings.NewReader(""), &out, &errs)
			if got := errs.String(); !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "$STINT") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
