package server

import (
	"crypto/tls"
	"sync/atomic"
)

// A Certificate is what https shows, read from two files. It may be used from
// many goroutines at once, also while it is read anew.
type Certificate struct {
	cert, key string
	now       atomic.Pointer[tls.Certificate]
}

// ReadCertificate reads the chain and the key, both PEM.
func ReadCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key}
	return c, c.Reload()
}

// Reload reads the files again. If there is an error, the certificate stays as
// it was. Connections that are open keep theirs.
func (c *Certificate) Reload() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err == nil {
		c.now.Store(&pair)
	}
	return err
}

// Config returns what a server needs: TLS 1.2 or later.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
	}
}
