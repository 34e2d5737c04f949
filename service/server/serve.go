package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/drain"
	"github.com/stint-dev/stint/service/observe"
)

// ServeOptions say how a handler is served. The zero value suits most programs.
type ServeOptions struct {
	// TLS is for https. The default is http.
	TLS *tls.Config
	// Log receives failures of connections, without their addresses. The default
	// discards them.
	Log *slog.Logger
	// OnStop is called when Serve begins to stop, so that the server can report
	// that it is not ready any more. Optional.
	OnStop func()
	// Notice is how long new connections are still accepted after OnStop, so that
	// balancers can notice that the server is not ready. The default value is 0.
	Notice time.Duration
	// Drain is how long requests in flight may take to finish after Notice. The
	// default value is 10 s.
	Drain time.Duration
	// HeaderTimeout is how long a client may take to send its headers. The
	// default value is 5 s: enough for a slow phone, too little for a client that
	// holds connections open on purpose.
	HeaderTimeout time.Duration
	// ReadTimeout is how long a client may take to send all of a request. The
	// default value is 10 s.
	ReadTimeout time.Duration
	// WriteTimeout is how long an answer may take, from the end of the request's
	// headers. The default value is 10 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection is kept open without a request. The
	// default value is 2 minutes, longer than the minute of nginx and others: if the
	// client closes first, it never sends a request into a closed connection.
	IdleTimeout time.Duration
	// MaxHeader bounds the headers of a request, in bytes; net/http adds 4 KiB to
	// it. The default value is 16 KiB.
	MaxHeader int
}

func (o *ServeOptions) fill() {
	o.Drain = cmp.Or(o.Drain, 10*time.Second)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 5*time.Second)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 10*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 2*time.Minute)
	o.MaxHeader = cmp.Or(o.MaxHeader, 16<<10)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.OnStop == nil {
		o.OnStop = func() {}
	}
}

// Serve answers on ln until ctx is done, and then stops in four steps. It calls OnStop.
// For as long as Notice, it still accepts connections, and ends each with its answer. It
// closes ln, and lets the requests in flight finish for at most Drain. It closes what is
// left, and returns nil if nothing was.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, o ServeOptions) error {
	o.fill()
	server := &http.Server{
		Handler:           h,
		TLSConfig:         o.TLS,
		ReadHeaderTimeout: o.HeaderTimeout,
		ReadTimeout:       o.ReadTimeout,
		WriteTimeout:      o.WriteTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    o.MaxHeader,
		ErrorLog:          ErrorLog(o.Log),
		ConnContext:       withAdminConn,
		ConnState:         noteIdle,

		DisableGeneralOptionsHandler: true, // or net/http would answer OPTIONS * itself, for any Host
	}
	running := drain.NewHTTP(server, ln)
	if err := running.Serve(ctx, o.OnStop, o.Notice); err != nil {
		return err
	}
	bound, release := context.WithTimeout(context.WithoutCancel(ctx), o.Drain)
	defer release()
	err := running.Stop(bound)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("not all requests had finished when the drain was over")
	}
	if closing := running.Close(); err == nil {
		err = closing
	}
	return err
}

// ErrorLog returns a log for net/http. It takes out the addresses of clients, which
// net/http writes, and leaves out lines as [SampleLog] does.
func ErrorLog(logger *slog.Logger) *log.Logger {
	logger = SampleLog(logger)
	return log.New(lineWriter(func(line string) {
		logger.Warn("http", "error", Redact(strings.TrimSpace(line)))
	}), "", 0)
}

type lineWriter func(line string)

func (f lineWriter) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

// addresses matches IPv4 and IPv6 addresses as Go prints them, with their ports.
var addresses = regexp.MustCompile(`\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[^\]]*)?\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\b[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f]{0,4}){3,7}\b`)

// answers matches what Go quotes of an answer that a server sent without a request.
var answers = regexp.MustCompile(` starting with "(?:[^"\\]|\\.)*"`)

// Redact takes addresses and quoted answers of servers out of an error text of Go.
func Redact(text string) string {
	return addresses.ReplaceAllString(answers.ReplaceAllString(text, ""), "[address]")
}

// Local reports whether only this machine can reach a listener: it is on a
// loopback address or a Unix socket.
func Local(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// CheckHost refuses requests whose Host is neither localhost nor a loopback address,
// whatever the port. It keeps out pages of a site whose name was made to point at
// 127.0.0.1, since browsers send that name. An observer that is not nil counts refusals.
func CheckHost(next http.Handler, o *observe.Observer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localHost(r.Host) {
			if o != nil {
				o.Failed(entrypoint, &policy.RequestError{Attribute: "Host of who asks", Reason: "it names another machine than this one"})
			}
			p := problem{status: http.StatusMisdirectedRequest, detail: "Host names another machine: this address is for localhost, 127.0.0.1 and [::1] alone"}
			p.write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func localHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// Guard returns the handler for a listener on addr: next behind CheckHost if it is a
// loopback address, else next itself.
func Guard(next http.Handler, addr net.Addr, o *observe.Observer) http.Handler {
	if _, tcp := addr.(*net.TCPAddr); tcp && Local(addr) {
		return CheckHost(next, o)
	}
	return next
}
