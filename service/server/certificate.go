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

// A Certificate is a server's certificate and key, read from two files, and the CAs of
// clients if these must show a certificate too. It may be used from many goroutines at
// once, also while it is read again.
type Certificate struct {
	cert, key, clientCA string
	now                 atomic.Pointer[tls.Certificate]
	clients             atomic.Pointer[x509.CertPool]
	read                atomic.Pointer[string] // the stamp of the files at the last Reload, whether it failed or not
}

// ReadCertificate reads the chain and the key, both PEM, and the certificates of the CAs
// that sign clients' certificates; clientCA is "" if clients need no certificate.
func ReadCertificate(cert, key, clientCA string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, clientCA: clientCA}
	return c, c.Reload()
}

// ForClients reports whether clients must show a certificate.
func (c *Certificate) ForClients() bool { return c.clientCA != "" }

// Reload reads the files again. After an error, the certificate that was read before stays.
// Open connections keep the certificate that they began with.
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

// Watch reads the files again when they have changed, until ctx is done. The files are
// written one after the other, so it waits until they stay the same for one look. It
// calls note each time, with the error if they cannot be used, else with nil.
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

// stamp returns a text that changes when one of the files does.
func (c *Certificate) stamp() string {
	var all []any
	for _, name := range []string{c.cert, c.key, c.clientCA} {
		if info, err := os.Stat(name); err == nil {
			all = append(all, info.ModTime().UnixNano(), info.Size())
		}
	}
	return fmt.Sprint(all)
}

// Config returns the configuration of a server, with TLS 1.2 or later.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
	}
}

// ConfigForClients is Config for an address whose clients must show a certificate, if
// the Certificate has CAs for them.
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
