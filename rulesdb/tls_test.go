package rulesdb_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// An authority signs certificates of a test.
type authority struct {
	dir    string
	parent *x509.Certificate
	key    *ecdsa.PrivateKey
}

// sign writes NAME.pem and NAME.key, readable by all.
func (a *authority) sign(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: a.parent == nil, BasicConstraintsValid: true,
	}
	if a.parent == nil {
		a.parent, a.key = c, private
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.parent, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestMySQLTLS connects to a MariaDB that asks for a client's certificate, with
// files that are replaced while the program runs.
func TestMySQLTLS(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "tls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		t.Fatal(err)
	}
	a := &authority{dir: dir}
	ca, _ := a.sign(t, "ca")
	cert, key := a.sign(t, "server")
	own, ownKey := a.sign(t, "client")
	other := &authority{dir: dir}
	otherCA, _ := other.sign(t, "other")
	server := dbtest.MariaDB(t, "--ssl-ca="+ca, "--ssl-cert="+cert, "--ssl-key="+key)
	server.Exec(t, "CREATE USER node REQUIRE X509", "GRANT ALL ON stint.* TO node")
	base := strings.Replace(server.URL, "root@", "node@", 1)
	for query, good := range map[string]bool{
		"?ssl-ca=" + ca + "&ssl-cert=" + own + "&ssl-key=" + ownKey:          true,
		"?tls=true&ssl-ca=" + ca + "&ssl-cert=" + own + "&ssl-key=" + ownKey: true,
		"?ssl-ca=" + ca: false, // no certificate of the client's
		"?ssl-ca=" + otherCA + "&ssl-cert=" + own + "&ssl-key=" + ownKey: false, // another server than meant
		"": false,
	} {
		db, err := rulesdb.Open(base+query, rulesdb.Options{})
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if _, err = db.Status(t.Context()); (err == nil) != good {
			t.Errorf("%s: %v", query, err)
		}
		db.Close()
	}
	for _, query := range []string{"?ssl-ca=/none", "?ssl-cert=" + own, "?ssl-ca=" + ownKey, "?tls=skip-verify&ssl-ca=" + ca} {
		if db, err := rulesdb.Open(base+query, rulesdb.Options{}); err == nil {
			db.Close()
			t.Errorf("%s was opened", query)
		}
	}
	// Renewed files: those of another authority first, which the server refuses.
	bad, badKey := other.sign(t, "renewed")
	db := dbtest.Open(t, base+"?ssl-ca="+ca+"&ssl-cert="+bad+"&ssl-key="+badKey, rulesdb.Options{})
	if _, err := db.Status(t.Context()); err == nil {
		t.Error("a certificate of another authority is taken")
	}
	a.sign(t, "renewed")
	if _, err := db.Status(t.Context()); err != nil {
		t.Errorf("renewed: %v", err)
	}
}
