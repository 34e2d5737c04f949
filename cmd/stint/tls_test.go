package main_test

import (
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// TestStoreTLS checks a server with TLS, and keeps limits there, as an ACL user
// and with a certificate that SSL_CERT_FILE or the URL names.
func TestStoreTLS(t *testing.T) {
	cert, key := t.TempDir()+"/cert.pem", t.TempDir()+"/key.pem"
	writeCertificate(t, cert, key, 1)
	address := freeport.Addr(t)
	_, port, _ := strings.Cut(address, ":")
	redis := startRedis(t, "", "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	redis.user(t, "stint", "+info", "+config|get")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	store := "rediss://stint:secret@" + address
	ours := store + "?cacert=" + url.QueryEscape(cert)
	for _, try := range []struct{ what, env, url, want string }{
		{"the system's", "SSL_CERT_FILE=/nothing", store, "x509"},
		{"the environment's", "SSL_CERT_FILE=" + cert, store, "a decision takes"},
		{"the URL's", "SSL_CERT_FILE=/nothing", ours, "a decision takes"},
		{"no file", "SSL_CERT_FILE=/nothing", store + "?cacert=/nothing.pem", "/nothing.pem: no such"},
	} {
		process := exec.Command(self, "doctor", "--limit", "1/h", "--http", "127.0.0.1:0", "--store", try.url, "--store-timeout", "5s")
		process.Env = append(os.Environ(), "STINT_TEST_MAIN=1", "SSL_CERT_DIR=/nothing", try.env)
		out, _ := process.CombinedOutput()
		if !strings.Contains(string(out), try.want) || strings.Contains(string(out), "secret") {
			t.Errorf("%s: want %q and no secret\n%s", try.what, try.want, out)
		}
	}
	s := startServe(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", sharedRules), "--http", "127.0.0.1:0", "--store", ours)
	s.counts(1)
	if got := []int{s.check("/closed"), s.check("/closed"), s.check("/closed"), s.check("/closed")}; got[0] != 200 || got[3] != 429 {
		t.Errorf("four times: %v", got)
	}
	s.stop("")
	if strings.Contains(s.log(), "secret") {
		t.Errorf("the log shows the password:\n%s", s.log())
	}
}
