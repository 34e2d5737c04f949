package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stint-dev/stint/internal/ports"

	"github.com/stint-dev/stint/service/resp"
	"github.com/stint-dev/stint/service/rls"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

// listenerFlags are the addresses of the interfaces beside HTTP, and their options.
type listenerFlags struct {
	GRPC         string   `name:"grpc" env:"STINT_GRPC" placeholder:"ADDRESS" help:"The address of the rate limit service for Envoy, version 3, such as 127.0.0.1:8081. The default is none."`
	RESP         string   `name:"resp" env:"STINT_RESP" placeholder:"ADDRESS" more:"" help:"The address for Redis clients (CL.THROTTLE, STINT.CHECK), such as 127.0.0.1:6380. The default is none."`
	RESPLimits   string   `name:"resp-limits" env:"STINT_RESP_LIMITS" enum:"caller,rules" default:"caller" more:"" help:"The limits that CL.THROTTLE uses: the caller's (caller, the default), or those of the rules, with the key as attribute key (rules)."`
	RLSOverrides string   `name:"rls-overrides" env:"STINT_RLS_OVERRIDES" enum:"on,off" default:"on" more:"" help:"Whether limits in Envoy's descriptors replace the rules: on (the default) or off."`
	RLSRefunds   string   `name:"rls-refunds" env:"STINT_RLS_REFUNDS" enum:"operators,askers" default:"operators" more:"" help:"Who may refund with negative hits: operators (the default) or all callers (askers)."`
	RLSHeaders   string   `name:"rls-headers" env:"STINT_RLS_HEADERS" enum:"${dialects}" default:"none" more:"" help:"The header fields that Envoy adds to responses: ${enum}. The default is none."`
	Probes       []string `env:"STINT_PROBES" placeholder:"ADDRESS" more:"" help:"An address for probes and Prometheus, without TLS and tokens: /healthcheck, /livez, /readyz and /metrics, and nothing else. May be repeated."`
	TLSClientCA  string   `name:"tls-client-ca" env:"STINT_TLS_CLIENT_CA" placeholder:"FILE" more:"" help:"Accept only clients with a certificate of these CAs, PEM. It needs --tls-cert."`
}

// listeners are the listeners beside HTTP; nil where no flag names an address.
type listeners struct {
	grpc, resp         net.Listener
	grpcOpen, respOpen bool // every client that reaches the listener may ask
	probes             []net.Listener
}

// openListeners listens on the addresses of the flags. It refuses an address that other
// machines reach without tokens or certificates.
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
	for _, address := range c.Probes {
		ln, err := listen(ctx, "--probes", address)
		if err != nil {
			ds.close()
			return nil, err
		}
		ds.probes = append(ds.probes, ln)
	}
	return ds, nil
}

// close closes the listeners. Servers that ran have closed theirs already.
func (ds *listeners) close() {
	for _, ln := range append(ds.probes, ds.grpc, ds.resp) {
		if ln != nil {
			_ = ln.Close() // most are closed already
		}
	}
}

// bound makes the bounds of connections apply to all listeners.
func (ds *listeners) bound(conns *server.Conns) {
	for _, ln := range []*net.Listener{&ds.grpc, &ds.resp} {
		if *ln != nil {
			*ln = conns.Listen(*ln)
		}
	}
}

// service returns the rate limit service for Envoy.
func (c *serveCmd) service(s *sources) *rls.Service {
	return rls.New(rls.Options{
		Source: s.source, Observer: s.observer, Traced: s.exporter != nil, RefuseLimits: c.RLSOverrides == "off",
		RoomFor: s.local.RoomFor, ClientsRefund: c.RLSRefunds == "askers", Headers: c.RLSHeaders != "none", Dialect: dialect(c.RLSHeaders),
	})
}

// serveListeners answers on the listeners until ctx is done, in the background. If one
// fails, end is called.
func (c *serveCmd) serveListeners(ctx context.Context, end func(), ds *listeners, service *rls.Service, admin http.Handler, s *sources, d *access, background *sync.WaitGroup, logger *slog.Logger) (failed func() error) {
	var mu sync.Mutex
	var all error
	run := func(flag string, ln net.Listener, encrypted bool, serve func() error) {
		logger.Info("listening", "interface", flag, "address", ln.Addr().String(), "tls", encrypted)
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
		o := rls.ServeOptions{TLS: d.tls(), Notice: c.DrainDelay, Drain: drain, Admit: d.role(ds.grpcOpen), Enter: boundCalls(s.client.Trusted)}
		run("grpc", ds.grpc, d.certificate != nil, func() error { return rls.Serve(ctx, ds.grpc, service, o) })
	}
	if ds.resp != nil {
		r := resp.New(resp.Options{
			Source: s.source, Store: s.store, RoomFor: s.local.RoomFor, Observer: s.observer, Log: logger, Version: buildVersion(),
			MapThrottle: c.RESPLimits == "rules", Admit: d.respTokens(ds.respOpen), TLS: d.tls(),
		})
		later := after(ctx, c.DrainDelay)
		run("resp", ds.resp, d.certificate != nil, func() error { return r.Serve(later, ds.resp, drain) })
	}
	for _, ln := range ds.probes {
		o := server.ServeOptions{Log: logger, Drain: drain, Notice: c.DrainDelay, IdleTimeout: 5 * time.Second} // probes have few connections
		run("probes", ln, false, func() error {
			return server.Serve(ctx, server.NewAdminConns(logger).Listen(ln), server.Guard(admin, ln.Addr(), nil), o)
		})
	}
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

const (
	// maxCalls is how many calls of Envoy's service may run at once: each holds its metadata
	// and its message. One address may have a quarter of them.
	maxCalls = 4000
	// maxWatches is the same for watches of health, which do not end by themselves.
	maxWatches = 1000
)

// boundCalls returns a function that counts a call of Envoy's service, or says which bound refuses the
// call.
func boundCalls(trusted []netip.Prefix) func(peer string, watch bool) (leave func(), why string) {
	calls := server.NewRequests(maxCalls, maxCalls/4, trusted)
	watches := server.NewRequests(maxWatches, maxWatches/4, trusted)
	return func(peer string, watch bool) (leave func(), why string) {
		if watch {
			return watches.Enter(server.AddressOf(peer))
		}
		return calls.Enter(server.AddressOf(peer))
	}
}

// after returns a context that ends delay after ctx.
func after(ctx context.Context, delay time.Duration) context.Context {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(delay, end) })
	return later
}

// buildVersion returns the version of this build.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// socketMode lets the owner and the group of a Unix socket connect.
const socketMode = 0o660

// listenUnix opens a Unix socket. It replaces a socket on which no process listens any
// more.
func listenUnix(ctx context.Context, flag, path string) (net.Listener, error) {
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		var dialer net.Dialer
		conn, dialed := dialer.DialContext(ctx, "unix", path)
		switch {
		case dialed == nil:
			_ = conn.Close() // it was dialed to see whether a process listens
			return nil, fmt.Errorf("%s unix:%s: something else listens there already", flag, path)
		case !isSocket(path):
			return nil, fmt.Errorf("%s unix:%s: a file that is no socket is there: remove it, or name another path", flag, path)
		case errors.Is(dialed, syscall.ECONNREFUSED):
			if err = os.Remove(path); err == nil {
				ln, err = config.Listen(ctx, "unix", path)
			}
		}
	}
	if err == nil {
		err = os.Chmod(path, socketMode)
	}
	if err != nil {
		if ln != nil {
			_ = ln.Close() // the error is returned
		}
		return nil, fmt.Errorf("%s unix:%s: %w", flag, path, err)
	}
	return ln, nil
}

// isSocket reports whether path is a socket. A symbolic link to a socket is none.
func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}

// connFlags bound the connections of clients.
type connFlags struct {
	MaxConns           int `name:"max-conns" env:"STINT_MAX_CONNS" default:"0" placeholder:"N" more:"" help:"The most client connections at once. The default is as many as the limit of file descriptors allows."`
	MaxConnsPerAddress int `name:"max-conns-per-address" env:"STINT_MAX_CONNS_PER_ADDRESS" default:"0" placeholder:"N" more:"" help:"The most connections of one address, IPv6 by /64; trusted proxies may have all. The default is a quarter of --max-conns."`

	ProxyProtocol []string `name:"proxy-protocol" env:"STINT_PROXY_PROTOCOL" placeholder:"CIDR" more:"" help:"Addresses of balancers that begin each connection with PROXY protocol, version 1 or 2, which gives the client's address. May be repeated. A connection from there without it is closed, and so is one from elsewhere with it."`
}

// check returns an error for a value that is out of range.
func (f *connFlags) check() error {
	switch {
	case f.MaxConns < 0:
		return usage("--max-conns", "%d: at least 1", f.MaxConns)
	case f.MaxConnsPerAddress < 0:
		return usage("--max-conns-per-address", "%d: at least 1", f.MaxConnsPerAddress)
	}
	_, err := f.balancers()
	return err
}

// balancers reads --proxy-protocol.
func (f *connFlags) balancers() (all []netip.Prefix, err error) {
	return proxies("--proxy-protocol", f.ProxyProtocol)
}

// proxies reads the addresses and ranges in the values of a flag.
func proxies(flag string, texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		p, err := rules.ParseProxy(text)
		if err != nil {
			return nil, &usageError{flag, err}
		}
		all = append(all, p)
	}
	return all, nil
}

// conns returns the bounds; a connection takes the given number of descriptors.
func (f *connFlags) conns(s *sources, descriptors int, logger *slog.Logger) *server.Conns {
	balancers, _ := f.balancers() // check has read them
	warnOfAnyone("--proxy-protocol", balancers, logger)
	return server.NewConns(server.ConnsOptions{
		Max: f.MaxConns, PerAddress: f.MaxConnsPerAddress, Trusted: s.client.Trusted, Balancers: balancers, PerConn: descriptors, Log: logger,
	})
}

// anyone returns a warning if one of a flag's proxies is the range of all addresses, else "".
func anyone(flag string, proxies []netip.Prefix) string {
	for _, p := range proxies {
		if p.Bits() == 0 {
			return fmt.Sprintf("%s: %v is every address, so any client says which it has", flag, p)
		}
	}
	return ""
}

func warnOfAnyone(flag string, proxies []netip.Prefix, logger *slog.Logger) {
	if why := anyone(flag, proxies); why != "" {
		logger.Warn(why, "hint", "name the proxies alone")
	}
}

// bracketed returns the address that was meant by an IPv6 address without brackets or without a port; "" if
// it is none.
func bracketed(address string) string {
	isIPv6 := func(text string) bool { addr, err := netip.ParseAddr(text); return err == nil && addr.Is6() }
	at := max(0, strings.LastIndexByte(address, ':'))
	switch bare := strings.Trim(address, "[]"); {
	case isIPv6(address[:at]):
		return "[" + address[:at] + "]" + address[at:]
	case isIPv6(bare):
		return "[" + bare + "]:8080"
	}
	return ""
}

// listen opens the address of a flag, or a Unix socket.
func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	if name := "STINT_" + strings.ToUpper(strings.ReplaceAll(flag[2:], "-", "_")); address != "" && os.Getenv(name) == address {
		flag += " ($" + name + ")"
	}
	switch path, isUnix := strings.CutPrefix(address, "unix:"); {
	case isUnix && strings.HasPrefix(flag, "--admin"):
		return nil, usage(flag, "%s: a Unix socket is for clients; write an address, such as 127.0.0.1:9090", address)
	case isUnix && path == "":
		return nil, usage(flag, "%s: write the socket's path behind it, such as unix:/run/stint.sock", address)
	case isUnix:
		return listenUnix(ctx, flag, path)
	}
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %s: something else listens there already; choose another, or 127.0.0.1:0 for any free port", flag, address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s %s: not allowed to listen there; ports from 1024 on need no rights", flag, address)
	case err != nil && strings.Trim(address, "0123456789") == "" && address != "":
		return nil, usage(flag, "%s: an address has a host and a port: write 127.0.0.1:%[1]s for this machine alone, :%[1]s for all that reach it", address)
	case err != nil && strings.HasPrefix(address, "/"):
		return nil, usage(flag, "%s: write unix:%[1]s for a Unix socket", address)
	case err != nil && strings.Contains(address, "://"):
		_, rest, _ := strings.Cut(address, "://")
		return nil, usage(flag, "%s: an address has no scheme: write %s", address, strings.TrimSuffix(rest, "/"))
	case err != nil && bracketed(address) != "":
		return nil, usage(flag, "%s: an address has a host, IPv6 in brackets, and a port: write %s", address, bracketed(address))
	case err != nil && !strings.Contains(address, ":"):
		return nil, usage(flag, "%s: an address has a host and a port: write %[1]s:8080", address)
	case ports.CheckAddress(address) != nil && !strings.HasSuffix(address, ":0"):
		return nil, usage(flag, "%s: %w; 0 is any that is free", address, ports.CheckAddress(address))
	case err != nil:
		return nil, usage(flag, "%s: %w", address, err)
	}
	return ln, nil
}

// An access says who may connect and ask, and by which tokens and certificates.
type access struct {
	clients, operators *server.Tokens      // nil without a file
	certificate        *server.Certificate // nil for http
	open               bool                // every client that reaches --http may ask
	anyone             bool                // every address may be open to all, without TLS too
	admin              net.Addr            // the address of --admin; nil for none
	local              bool                // only this machine reaches --admin
}

// newAccess reads the files of tokens and of TLS; "" stands for no file.
func newAccess(clients, operators, cert, key, clientCA string, logger *slog.Logger) (*access, error) {
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
	certificate, err := server.ReadCertificate(cert, key, clientCA)
	if err != nil {
		return nil, err
	}
	d.certificate = certificate
	return d, nil
}

// tls returns how connections are encrypted; nil if they are not.
func (d *access) tls() *tls.Config {
	if d.certificate == nil {
		return nil
	}
	return d.certificate.ConfigForClients()
}

// exposed reports whether every client that reaches an address may ask. It returns an
// error if other machines reach the address without tokens or certificates.
func (d *access) exposed(flag, text string, addr net.Addr, logger *slog.Logger) (open bool, err error) {
	tokens := d.clients != nil || d.operators != nil
	switch {
	case server.Local(addr):
		return d.clients == nil, nil
	case !tokens && d.certificate == nil && !d.anyone:
		return false, usage(flag, "%s can be reached from other machines: give --tls-cert and --tls-key, or --token-file; or listen on 127.0.0.1", text)
	case !tokens && (d.certificate == nil || !d.certificate.ForClients()):
		logger.Warn("everyone who reaches this address may ask: --token-file says who may", "address", addr.String())
	case d.certificate == nil:
		logger.Warn("tokens go over the network in clear: --tls-cert and --tls-key encrypt them", "address", addr.String())
	}
	return !tokens, nil
}

// role returns a function that says what the holder of a token may do with Envoy's service;
// nil admits every client.
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

// respTokens returns a function that says which tokens admit a Redis client; nil admits all.
func (d *access) respTokens(open bool) func(token string) bool {
	if open {
		return nil
	}
	return func(token string) bool { return d.clients.Has(token) || d.operators.Has(token) }
}

// watch reads the files of tokens and of TLS again when they change, until ctx is
// done.
func (d *access) watch(ctx context.Context, background *sync.WaitGroup, logger *slog.Logger) {
	for flag, tokens := range map[string]*server.Tokens{"--token-file": d.clients, "--operator-token-file": d.operators} {
		if tokens != nil {
			background.Go(func() {
				tokens.Watch(ctx, func(err error) {
					logger.Error("not read again, stays as it was", "what", flag, "error", err)
				})
			})
		}
	}
	if d.certificate != nil {
		background.Go(func() { d.certificate.Watch(ctx, d.noteCertificate(logger)) })
	}
}

// noteCertificate returns a function that logs whether a certificate that was read again is
// in use.
func (d *access) noteCertificate(logger *slog.Logger) func(error) {
	const what = "--tls-cert, --tls-key"
	return func(err error) {
		if err != nil {
			logger.Error("not read again, stays as it was", "what", what, "error", err)
			return
		}
		logger.Info("read again", "what", what, "valid_until", d.certificate.Until())
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
		d.noteCertificate(logger)(d.certificate.Reload())
	}
}
