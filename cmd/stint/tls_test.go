package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// certificate writes a certificate for 127.0.0.1 that vouches for itself, and
// its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert = writeFile(t, dir+"/cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	key = writeFile(t, dir+"/key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key
}

// TestStoreTLS checks a server with TLS, and keeps limits there, as an ACL user
// and with a certificate that SSL_CERT_FILE or the URL names.
func TestStoreTLS(t *testing.T) {
	cert, key := certificate(t)
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
