package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// An authority issues certificates of a test, as files in one directory.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.issue(t, "ca", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue writes name.pem and name.key.
func (a *authority) issue(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{a.file(name + ".pem"): {Type: "CERTIFICATE", Bytes: der}, a.file(name + ".key"): {Type: "PRIVATE KEY", Bytes: secret}} {
		disk.Write(t, file, string(pem.EncodeToMemory(block)))
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// server returns the arguments of a server with TLS at a port, and a certificate
// for 127.0.0.1 and redis.test.
func (a *authority) server(t *testing.T) (args []string, address string) {
	t.Helper()
	if _, err := os.Stat(a.file("server.pem")); err != nil {
		a.issue(t, "server", &x509.Certificate{
			DNSNames: []string{"redis.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		})
	}
	address = freeport.Addr(t)
	_, port, _ := net.SplitHostPort(address)
	return []string{
		"--tls-port", port, "--tls-cert-file", a.file("server.pem"), "--tls-key-file", a.file("server.key"), "--tls-ca-cert-file", a.file("ca.pem"),
	}, address
}

// decides reports how a store at a URL decides.
func decides(t *testing.T, url string) error {
	t.Helper()
	store, err := redisstore.New(redisstore.Options{URL: url, Timeout: patience})
	if err != nil {
		return err
	}
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "test", stint.New(1000, 1000*time.Hour)) // a state that stays for an hour
	if err != nil {
		t.Fatal(err)
	}
	d, err := limiter.Take(ctx, "a", 1)
	if err == nil && !d.Allowed {
		return errors.New("denied")
	}
	return err
}

// TestTLS connects to a server with TLS, as an ACL user, with certificates that
// the system does not know.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	args, open := a.server(t)
	redistest.Start(t, append(args, "--tls-auth-clients", "no", "--user", "anna", "on", ">p@ss/w:rd?", "~stint:*", "+@all")...)
	args, strict := a.server(t)
	redistest.Start(t, args...)

	q := url.Values{"cacert": {a.file("ca.pem")}}
	ours := q.Encode()
	q.Set("cert", a.file("client.pem"))
	q.Set("key", a.file("client.key"))
	both := q.Encode()
	_, port, _ := net.SplitHostPort(open)
	for _, try := range []struct{ what, url, want string }{
		{"the CA of the test", "rediss://" + open + "?" + ours, ""},
		{"an ACL user", "rediss://anna:p%40ss%2Fw%3Ard%3F@" + open + "?" + ours, ""},
		{"another password", "rediss://anna:password@" + open + "?" + ours, "WRONGPASS"},
		{"no verification", "rediss://" + open + "?skip_verify=true", ""},
		{"the system's CAs", "rediss://" + open, "x509"},
		{"another name", "rediss://localhost:" + port + "?" + ours, "x509"},
		{"another name, which is said", "rediss://localhost:" + port + "?server_name=redis.test&" + ours, ""},
		{"a client's certificate", "rediss://" + strict + "?" + both, ""},
		{"no client's certificate", "rediss://" + strict + "?" + ours, "connecting"},
		{"no TLS", "redis://" + open, "connecting"},
	} {
		err := decides(t, try.url)
		if try.want == "" && err != nil || try.want != "" && (err == nil || !strings.Contains(err.Error(), try.want)) {
			t.Errorf("%s: %v; want %q", try.what, err, try.want)
		}
	}
}

// TestTLSNames has a URL of several addresses: each has a certificate for its own name.
func TestTLSNames(t *testing.T) {
	a := newAuthority(t)
	args, address := a.server(t)
	redistest.Start(t, append(args, "--tls-auth-clients", "no")...)
	_, port, _ := net.SplitHostPort(address)
	o, err := redisstore.ParseURL("rediss://localhost:" + port + "?addr=" + address + "&cacert=" + url.QueryEscape(a.file("ca.pem")))
	if err != nil {
		t.Fatal(err)
	}
	for at, valid := range map[string]bool{address: true, "localhost:" + port: false} {
		conn, err := o.Dialer(ctx, "tcp", at)
		if (err == nil) != valid {
			t.Errorf("%s: %v", at, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// TestTLSSentinel finds a master through a Sentinel that wants TLS and a user of
// its own, which are not those of the master.
func TestTLSSentinel(t *testing.T) {
	a := newAuthority(t)
	args, master := a.server(t)
	redistest.Start(t, append(args, "--tls-auth-clients", "no", "--tls-replication", "yes", "--user", "anna", "on", ">one", "~*", "+@all")...)
	host, port, _ := net.SplitHostPort(master)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\ndir %s\nsentinel monitor stint %s %s 1\n", filepath.Dir(file), host, port)
	disk.Write(t, file, text)
	args, sentinel := a.server(t)
	redistest.Start(t, append(append([]string{file, "--sentinel"}, args...), "--tls-auth-clients", "no", "--tls-replication", "yes", "--requirepass", "two",
		"--user", "watch", "on", ">three", "allchannels", "-@all", "+sentinel|sentinels", "+sentinel|get-master-addr-by-name", "+subscribe", "+unsubscribe", "+punsubscribe", "+ping")...)

	token := filepath.Join(t.TempDir(), "token")
	disk.Write(t, token, "one\n")
	ours := "master_set=stint&cacert=" + url.QueryEscape(a.file("ca.pem"))
	for _, try := range []struct{ what, url, want string }{
		{"a password", "rediss://anna:one@" + sentinel + "?sentinel_password=two&" + ours, ""},
		{"a user", "rediss://anna:one@" + sentinel + "?sentinel_username=watch&sentinel_password=three&" + ours, ""},
		{"a password in a file, which is the master's alone", "rediss://anna@" + sentinel + "?sentinel_password=two&password_file=" + token + "&" + ours, ""},
		{"nobody", "rediss://anna:one@" + sentinel + "?" + ours, "NOAUTH"},
		{"another password", "rediss://anna:one@" + sentinel + "?sentinel_password=one&" + ours, "WRONGPASS"},
		{"another password of the master", "rediss://anna:two@" + sentinel + "?sentinel_password=two&" + ours, "WRONGPASS"},
		{"no TLS", "redis://anna:one@" + sentinel + "?sentinel_password=two&master_set=stint", "connecting"},
	} {
		err := decides(t, try.url)
		if try.want == "" && err != nil || try.want != "" && (err == nil || !strings.Contains(err.Error(), try.want)) {
			t.Errorf("%s: %v; want %q", try.what, err, try.want)
		}
	}
}

// TestUnixSocket connects to a database of a server by its socket.
func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "stint") // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	server := redistest.Start(t, "--unixsocket", socket)
	if err := decides(t, "unix://"+socket+"?db=2"); err != nil {
		t.Fatal(err)
	}
	if info := server.CLI(t, "info", "keyspace"); !strings.Contains(info, "db2:keys=") || strings.Contains(info, "db0") {
		t.Errorf("not in database 2: %s", info)
	}
}

// TestURL refuses what cannot work, and shows nothing of a URL.
func TestURL(t *testing.T) {
	a := newAuthority(t)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	disk.Write(t, empty, "")
	for query, want := range map[string]string{
		"rediss://:secret@127.0.0.1:1?cacert=" + a.file("none"):                           "no such file",
		"rediss://:secret@127.0.0.1:1?cacert=" + empty:                                    "no certificate",
		"rediss://:secret@127.0.0.1:1?cert=" + a.file("ca.pem"):                           "go together",
		"rediss://:secret@127.0.0.1:1?cert=" + a.file("ca.pem") + "&key=" + empty:         "cert and key",
		"redis://:secret@127.0.0.1:1?sentinel_password=secret&cacert=" + a.file("ca.pem"): "rediss://",
		"rediss://:secret@127.0.0.1:1?skip_verify=secret":                                 "true or false",
		"redis://127.0.0.1:1?dial_timout=secret":                                          `"dial_timout" is no parameter: did you mean dial_timeout?`,
		"redis://127.0.0.1:1?write_timeout=secret":                                        `"write_timeout" is no parameter: there are addr, cacert, `,
		"redis://127.0.0.1:1?pool_size=secret":                                            "pool_size: a whole number from 1",
		"redis://127.0.0.1:1?dial_timeout=secret":                                         "dial_timeout: a duration",
		"redis://127.0.0.1:1/secret":                                                      "db: a whole number",
		"redis://127.0.0.1:1?secret1":                                                     "a parameter is unknown: there are addr, cacert, ",
		"http://:secret@127.0.0.1:1":                                                      "not understood",
	} {
		_, err := redisstore.ParseURL(query)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want %q and no secret", query, err, want)
		}
	}
}
