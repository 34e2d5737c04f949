package main_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
)

// must runs a command of stint, and returns what it prints.
func must(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := main.Run(t.Context(), args, strings.NewReader(""), &out, &errs); status != 0 {
		t.Fatalf("stint %s: exit %d %s", strings.Join(args, " "), status, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// TestPageTLS: an address that others reach is https, where a database has the
// tokens too. Without one nothing is to be seen, plain http is refused, and the
// cookie of a session goes over https alone.
func TestPageTLS(t *testing.T) {
	dir := t.TempDir()
	database := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "push", writeFile(t, dir+"/stint.yaml", pageRules), "--rules", database)
	operator := must(t, "token", "make", "otto", "--role", "operator", "--rules", database)
	trusted := x509.NewCertPool()
	trusted.AddCert(writeCertificate(t, dir+"/cert.pem", dir+"/key.pem", 1))
	p := launch(t, "serve", "serve", "--http", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--rules", database, "--tls-cert", dir+"/cert.pem", "--tls-key", dir+"/key.pem")
	p.listening()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer client.CloseIdleConnections()
	admin := "127.0.0.1" + p.admin[strings.LastIndexByte(p.admin, ':'):]
	if resp, err := http.Get("http://" + admin + "/v1/rules"); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain http is answered %d", resp.StatusCode)
		}
	}
	for _, one := range []struct {
		method, path, body, token string
		want                      int
	}{
		{"GET", "/livez", "", "", 200}, {"GET", "/v1/rules", "", "", 401}, {"GET", "/v1/top", "", "", 401}, {"GET", "/v1/rules", "", "made-up-0123456789", 401},
		{"GET", "/v1/rules", "", operator, 200}, {"GET", "/ui/v1/top", "", "", 401}, {"GET", "/ui/live", "", "", 401}, {"GET", "/lab/", "", "", 404},
		{"POST", "/ui/session", fmt.Sprintf(`{"token":%q}`, operator), "", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), one.method, "https://"+admin+one.path, strings.NewReader(one.body))
		if err != nil {
			t.Fatal(err)
		}
		if one.token != "" {
			r.Header.Set("Authorization", "Bearer "+one.token)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		set := resp.Header.Get("Set-Cookie")
		if resp.StatusCode != one.want || one.body != "" && !(strings.Contains(set, "; Secure") && strings.Contains(set, "HttpOnly")) {
			t.Errorf("%s: %d, want %d; the cookie: %s", one.path, resp.StatusCode, one.want, set)
		}
	}
	if strings.Contains(p.log(), operator) {
		t.Error("the log has a token")
	}
}

// TestPageRevoked: a token that is revoked ends the streams of its sessions, after
// a few events at most.
func TestPageRevoked(t *testing.T) {
	database := "sqlite:" + t.TempDir() + "/stint.db"
	must(t, "rules", "push", writeFile(t, t.TempDir()+"/stint.yaml", pageRules), "--rules", database)
	token := must(t, "token", "make", "vera", "--role", "viewer", "--rules", database)
	p := operated(t, "--rules", database)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.admin+"/ui/session", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, p.admin+"/ui/live", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range resp.Cookies() {
		r.AddCookie(c)
	}
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		t.Fatal(stream.Status)
	}
	events, more := bufio.NewScanner(stream.Body), 0
	events.Buffer(nil, 1<<20)
	for revoked := false; events.Scan(); {
		switch {
		case events.Text() != "event: now":
		case !revoked:
			must(t, "token", "revoke", "vera", "--rules", database)
			revoked = true
		default:
			if more++; more > 8 {
				t.Fatal("the stream of a revoked token goes on")
			}
		}
	}
	if err := events.Err(); err != nil {
		t.Errorf("the stream is cut off: %v", err)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
