package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/stint-dev/stint/cmd/internal/service/rls"
	"github.com/stint-dev/stint/cmd/internal/service/server"
)

// An access is who may come in, and how.
type access struct {
	clients, operators *server.Tokens      // nil without a file
	certificate        *server.Certificate // nil for http
	clientCAs          *x509.CertPool      // that sign those of clients; nil if they show none
	open               bool                // every client that reaches it may ask
	local              bool                // only this machine reaches the address of operators
}

// newAccess reads the files of tokens and of TLS; "" is none.
func newAccess(clients, operators, cert, key string, logger *slog.Logger) (*access, error) {
	d := &access{}
	for _, one := range []struct {
		flag, path string
		read       func(path string) (*server.Tokens, error)
		to         **server.Tokens
	}{
		{"--token-file", clients, server.ReadTokens, &d.clients},
		{"--operator-token-file", operators, server.ReadOperators, &d.operators},
	} {
		if one.path == "" {
			continue
		}
		tokens, err := one.read(one.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.flag, err)
		}
		if tokens.Readable() {
			logger.Warn("everyone on this machine can read the tokens: chmod o-r", "file", one.path)
		}
		*one.to = tokens
	}
	if cert == "" {
		return d, nil
	}
	certificate, err := server.ReadCertificate(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	d.certificate = certificate
	return d, nil
}

// readClients reads the certificates of --tls-client-ca.
func readClients(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls-client-ca: %s: no certificate there: PEM with CERTIFICATE blocks", path)
	}
	return pool, nil
}

// tls returns how connections are encrypted; nil if they are not.
func (d *access) tls() *tls.Config {
	if d.certificate == nil {
		return nil
	}
	config := d.certificate.Config()
	if d.clientCAs != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, d.clientCAs
	}
	return config
}

// exposed says whether every client that reaches an address may ask. It refuses an
// address that other machines reach without tokens or certificates.
func (d *access) exposed(flag, text string, addr net.Addr, logger *slog.Logger) (open bool, err error) {
	tokens := d.clients != nil || d.operators != nil
	switch {
	case server.Local(addr):
		return d.clients == nil, nil
	case !tokens && d.certificate == nil:
		return false, usage(flag, "%s can be reached from other machines: give --tls-cert and --tls-key, or --token-file; or listen on 127.0.0.1", text)
	case !tokens && d.clientCAs == nil:
		logger.Warn("everyone who reaches this address may ask: --token-file says who may", "address", addr.String())
	case d.certificate == nil:
		logger.Warn("tokens go over the network in clear: --tls-cert and --tls-key encrypt them", "address", addr.String())
	}
	return !tokens, nil
}

// role says what the holder of a token may do with Envoy's service.
func (d *access) role(open bool) func(token string) rls.Role {
	if open && d.operators == nil {
		return nil
	}
	return func(token string) rls.Role {
		switch {
		case d.operators.Has(token):
			return rls.Operator
		case open || d.clients.Has(token):
			return rls.Client
		}
		return rls.Nobody
	}
}

// respTokens returns which tokens may ask as a Redis client; nil admits every client.
func (d *access) respTokens(open bool) func(token string) bool {
	if open {
		return nil
	}
	return func(token string) bool { return d.clients.Has(token) || d.operators.Has(token) }
}

// operate returns which tokens may refund and reset as a Redis client; nil if none.
func (d *access) operate() func(token string) bool {
	if d.operators == nil {
		return nil
	}
	return func(token string) bool { return d.operators.Has(token) }
}

// watchTokens reads the files of tokens again when they change, until ctx is
// done.
func (d *access) watchTokens(ctx context.Context, background *sync.WaitGroup, logger *slog.Logger) {
	for flag, tokens := range map[string]*server.Tokens{"--token-file": d.clients, "--operator-token-file": d.operators} {
		if tokens != nil {
			background.Go(func() {
				tokens.Watch(ctx, func(err error) {
					logger.Error("not read again, stays as it was", "what", flag, "error", err)
				})
			})
		}
	}
}

// reload reads the files of tokens and of TLS again.
func (d *access) reload(logger *slog.Logger) {
	note := func(what string, err error) {
		if err != nil {
			logger.Error("not read again, stays as it was", "what", what, "error", err)
		}
	}
	if d.clients != nil {
		note("--token-file", d.clients.Reload())
	}
	if d.operators != nil {
		note("--operator-token-file", d.operators.Reload())
	}
	if d.certificate != nil {
		note("--tls-cert, --tls-key", d.certificate.Reload())
	}
}
