package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// A Certificate is what https shows, read from two files. It may be used from
// many goroutines at once, also while it is read anew.
type Certificate struct {
	cert, key string
	now       atomic.Pointer[tls.Certificate]
	read      atomic.Pointer[string] // the stamp of what was read last, used or not
}

// ReadCertificate reads the chain and the key, both PEM.
func ReadCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key}
	return c, c.Reload()
}

// Reload reads the files again. If there is an error, the certificate stays as
// it was. Connections that are open keep theirs.
func (c *Certificate) Reload() error {
	stamp := c.stamp()
	c.read.Store(&stamp)
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err == nil {
		c.now.Store(&pair)
	}
	return err
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
	for _, name := range []string{c.cert, c.key} {
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
