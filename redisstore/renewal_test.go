package redisstore_test

import (
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestCertificatesRenewed has the certificates of a server and of its client expire, and
// others be written over them, by another authority. An open connection goes on. One
// that is made in between fails before anything is sent, and says why. When all files
// are there, the store decides again by itself.
func TestCertificatesRenewed(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	a.issue(t, "client", &x509.Certificate{ExtKeyUsage: both})
	args, address := a.server(t)
	server := redistest.Start(t, args...)
	q := url.Values{"cacert": {a.file("ca.pem")}, "cert": {a.file("client.pem")}, "key": {a.file("client.key")}}
	store := open(t, "rediss://"+address+"?"+q.Encode(), redisstore.Options{})
	limit := bind(t, store, "1000000/1h")
	for range 200 { // all connections that the client keeps are made
		take(t, limit, "a", 1)
	}
	next := newAuthority(t)
	expired := &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: both,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	}
	serve := func(by *authority, name string) {
		t.Helper()
		server.CLI(t, "config", "set", "tls-cert-file", by.file(name+".pem"), "tls-key-file", by.file(name+".key"), "tls-ca-cert-file", by.file("ca.pem"))
	}
	fails := func(why string) {
		t.Helper()
		server.CLI(t, "client", "kill", "type", "normal")
		eventually(t, "not told why", func() bool {
			_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
			if err == nil {
				t.Fatal("decided by a certificate that is not valid")
			}
			if !strings.Contains(err.Error(), why) {
				return false // of connections that were cut
			}
			if !errors.Is(err, redisstore.ErrNotExecuted) || errors.Is(err, redisstore.ErrAmbiguous) {
				t.Errorf("nothing was sent, and reported %v", err)
			}
			return true
		})
	}
	decides := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			for range 200 { // by all connections
				if _, err := limit.Decide(ctx, meter.OpTake, "a", 1); err != nil {
					return false
				}
			}
			return true
		})
	}

	a.issue(t, "expired", expired)
	serve(a, "expired")
	take(t, limit, "a", 1)
	fails("certificate has expired")
	serve(a, "server")
	decides("the certificate is valid again")

	next.issue(t, "server", &x509.Certificate{IPAddresses: expired.IPAddresses, ExtKeyUsage: both})
	next.issue(t, "client", &x509.Certificate{ExtKeyUsage: both})
	server.CLI(t, "config", "set", "tls-ca-cert-file", next.file("ca.pem")) // the client's certificate is of another
	take(t, limit, "a", 1)
	fails("remote error: tls: unknown certificate authority")
	serve(next, "server")
	fails("unknown authority")
	for _, file := range []string{"ca.pem", "client.key", "client.pem"} { // between the last two, key and certificate do not match
		text := disk.Read(t, next.file(file))
		_, _ = limit.Decide(ctx, meter.OpTake, "a", 1) // of which nothing comes yet
		disk.Write(t, a.file(file), string(text))
	}
	decides("the files have been renewed")
}
