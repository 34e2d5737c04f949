package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// A Certificate is what https shows, read from two files, and the CAs of clients that
// must show one, too. It may be used from many goroutines at once, also while it is
// read anew.
type Certificate struct {
	cert, key, clientCA string
	now                 atomic.Pointer[tls.Certificate]
	clients             atomic.Pointer[x509.CertPool]
	read                atomic.Pointer[string] // the stamp of what was read last, used or not
}

// ReadCertificate reads the chain and the key, both PEM, and the certificates of the CAs
// that sign those of clients; "" if clients need none.
func ReadCertificate(cert, key, clientCA string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, clientCA: clientCA}
	return c, c.Reload()
}

// ForClients reports whether clients must show a certificate.
func (c *Certificate) ForClients() bool { return c.clientCA != "" }

// Reload reads the files again. If there is an error, all stays as it was. Connections
// that are open keep theirs.
func (c *Certificate) Reload() error {
	stamp := c.stamp()
	c.read.Store(&stamp)
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	if c.ForClients() {
		text, err := os.ReadFile(c.clientCA)
		if err != nil {
			return fmt.Errorf("--tls-client-ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return fmt.Errorf("--tls-client-ca: %s: no certificate there: PEM with CERTIFICATE blocks", c.clientCA)
		}
		c.clients.Store(pool)
	}
	c.now.Store(&pair)
	return nil
}

// Until returns until when the certificate is valid.
func (c *Certificate) Until() time.Time { return c.now.Load().Leaf.NotAfter.UTC() }

// Watch reads the files again when they have changed, until ctx is done: once both
// have stood still between two looks, since one is written after the other. note is
// told each time, with why they cannot be used or nil.
func (c *Certificate) Watch(ctx context.Context, note func(error)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for before := c.stamp(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := c.stamp()
		if now == before && now != *c.read.Load() {
			note(c.Reload())
		}
		before = now
	}
}

// stamp is another one when a file is.
func (c *Certificate) stamp() string {
	var all []any
	for _, name := range []string{c.cert, c.key, c.clientCA} {
		if info, err := os.Stat(name); err == nil {
			all = append(all, info.ModTime().UnixNano(), info.Size())
		}
	}
	return fmt.Sprint(all)
}

// Config returns what a server needs: TLS 1.2 or later.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
	}
}

// ConfigForClients is Config for an address whose clients must show a certificate, if
// there are CAs for them.
func (c *Certificate) ConfigForClients() *tls.Config {
	config := c.Config()
	if !c.ForClients() {
		return config
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.ClientCAs = c.clients.Load()
		return now, nil
	}
	return config
}
