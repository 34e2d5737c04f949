package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/stint-dev/stint/cmd/internal/service/resp"
	"github.com/stint-dev/stint/cmd/internal/service/rls"
	"github.com/stint-dev/stint/cmd/internal/service/server"
)

// listenerFlags are the addresses to listen on beside HTTP, and how to answer there.
type listenerFlags struct {
	GRPC         string `name:"grpc" env:"STINT_GRPC" placeholder:"ADDRESS" help:"Where Envoy asks: its rate limit service, version 3, such as 127.0.0.1:8081. The default is nowhere."`
	RESP         string `name:"resp" env:"STINT_RESP" placeholder:"ADDRESS" help:"Where Redis clients ask: CL.THROTTLE and STINT.CHECK, such as 127.0.0.1:6380. The default is nowhere."`
	RESPLimits   string `name:"resp-limits" env:"STINT_RESP_LIMITS" enum:"caller,rules" default:"caller" help:"Whose limits CL.THROTTLE goes by: the caller's (caller, the default), or those of the rules, with the key as attribute key (rules)."`
	RLSOverrides string `name:"rls-overrides" env:"STINT_RLS_OVERRIDES" enum:"on,off" default:"on" help:"Whether limits that Envoy's descriptors bring along take the place of the rules: on (the default) or off."`
	RLSRefunds   string `name:"rls-refunds" env:"STINT_RLS_REFUNDS" enum:"operators,askers" default:"operators" help:"Who may give back by negative hits: operators (the default) or askers."`
	RLSHeaders   string `name:"rls-headers" env:"STINT_RLS_HEADERS" enum:"none,draft11,draft06,x-ratelimit" default:"none" help:"The header fields that Envoy is told to add to responses: none (the default), draft11, draft06 or x-ratelimit."`
	TLSClientCA  string `name:"tls-client-ca" env:"STINT_TLS_CLIENT_CA" placeholder:"FILE" help:"Take connections alone from who shows a certificate of these, PEM. It goes with --tls-cert."`
}

// listeners are those beside HTTP; nil where no flag names an address.
type listeners struct {
	grpc, resp         net.Listener
	grpcOpen, respOpen bool // every client that reaches it may ask
}

// openListeners listens where flags say, and refuses addresses that others
// reach while nothing keeps them out.
func (c *serveCmd) openListeners(ctx context.Context, d *access, logger *slog.Logger) (ds *listeners, err error) {
	ds = &listeners{}
	for _, one := range []struct {
		flag, address string
		to            *net.Listener
		open          *bool
	}{
		{"--grpc", c.GRPC, &ds.grpc, &ds.grpcOpen}, {"--resp", c.RESP, &ds.resp, &ds.respOpen},
	} {
		if one.address == "" {
			continue
		}
		if *one.to, err = listen(ctx, one.flag, one.address); err == nil {
			*one.open, err = d.exposed(one.flag, one.address, (*one.to).Addr(), logger)
		}
		if err != nil {
			ds.close()
			return nil, err
		}
	}
	return ds, nil
}

// close closes what was opened. Servers have done so already.
func (ds *listeners) close() {
	for _, ln := range []net.Listener{ds.grpc, ds.resp} {
		if ln != nil {
			_ = ln.Close() // it is closed twice, or was never reached
		}
	}
}

// bound counts the connections of all.
func (ds *listeners) bound(conns *server.Conns) {
	for _, ln := range []*net.Listener{&ds.grpc, &ds.resp} {
		if *ln != nil {
			*ln = conns.Listen(*ln)
		}
	}
}

// service returns what answers Envoy.
func (c *serveCmd) service(s *sources) *rls.Service {
	return rls.New(rls.Options{
		Source: s.source, Observer: s.observer, Traced: s.exporter != nil, RefuseLimits: c.RLSOverrides == "off",
		ClientsRefund: c.RLSRefunds == "askers", Headers: c.RLSHeaders != "none", Dialect: dialects[c.RLSHeaders],
	})
}

// serveListeners answers on the listeners until ctx is done, in the background. If one
// fails, end is called.
func (c *serveCmd) serveListeners(ctx context.Context, end func(), ds *listeners, service *rls.Service, s *sources, d *access, background *sync.WaitGroup, logger *slog.Logger) (failed func() error) {
	var mu sync.Mutex
	var all error
	run := func(flag string, ln net.Listener, serve func() error) {
		logger.Info("listening", "door", flag, "address", ln.Addr().String(), "tls", d.certificate != nil)
		background.Go(func() {
			if err := serve(); err != nil {
				mu.Lock()
				all = errors.Join(all, fmt.Errorf("%s: %w", flag, err))
				mu.Unlock()
				end()
			}
		})
	}
	drain := max(c.Drain, 1)
	if ds.grpc != nil {
		o := rls.ServeOptions{TLS: d.tls(), Notice: c.DrainDelay, Drain: drain, Admit: d.role(ds.grpcOpen)}
		run("grpc", ds.grpc, func() error { return rls.Serve(ctx, ds.grpc, service, o) })
	}
	if ds.resp != nil {
		r := resp.New(resp.Options{
			Source: s.source, Store: s.store, Observer: s.observer, Log: logger, Version: buildVersion(),
			MapThrottle: c.RESPLimits == "rules", Admit: d.respTokens(ds.respOpen), Operate: d.operate(), TLS: d.tls(),
		})
		later := after(ctx, c.DrainDelay)
		run("resp", ds.resp, func() error { return r.Serve(later, ds.resp, drain) })
	}
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// after returns a context that is done a while after ctx is.
func after(ctx context.Context, delay time.Duration) context.Context {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(delay, end) })
	return later
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

// buildVersion returns the version of this build.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
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
