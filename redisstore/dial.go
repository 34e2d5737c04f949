package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"time"
)

// A dialer makes the connections of a URL. It differs from go-redis in four ways: it reads
// the files of certificates for each connection, it tries each address of a name, it takes
// the URL's host for nodes that announce no address, and it bounds replies.
type dialer struct {
	host   string      // the host of the URL
	most   int         // the most bytes of a reply
	config *tls.Config // nil without TLS
	files  certificates
	net    net.Dialer
}

// dial is for [redis.UniversalOptions], whose DialTimeout bounds it.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, host, err := d.connect(ctx, network, address)
	if err == nil && d.config != nil {
		conn, err = d.secure(ctx, conn, host)
	}
	if err != nil {
		return nil, err
	}
	return checked(conn, d.most), nil
}

func (d *dialer) connect(ctx context.Context, network, address string) (conn net.Conn, host string, err error) {
	if network == "unix" {
		conn, err = d.net.DialContext(ctx, network, address)
		return conn, "", err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	if host == "" || host == "?" { // a node of a cluster that announces no host name
		host = d.host
	}
	conn, err = connectTo(ctx, host, port, &d.net)
	return conn, host, err
}

// secure begins TLS on a connection, and closes the connection if that fails.
func (d *dialer) secure(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	config, unread := d.files.with(d.config)
	config.ServerName = cmp.Or(config.ServerName, host)
	within, cancel := bounded(ctx)
	defer cancel()
	secure := tls.Client(conn, config)
	err := secure.HandshakeContext(within)
	if err == nil && len(config.Certificates) > 0 {
		if err = ping(within, secure); err != nil {
			err = fmt.Errorf("the client certificate was shown: %w", err)
		}
	}
	if err != nil {
		_ = conn.Close()
		if unread != nil {
			err = fmt.Errorf("%w (%w)", err, unread)
		}
		return nil, err
	}
	return secure, nil
}

// ping waits for an answer of a server, whatever it is. With TLS 1.3, a server refuses the
// certificate of a client only after the client's handshake has ended: without a ping, the
// first write might fail before the reason was read.
func ping(ctx context.Context, conn net.Conn) error {
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	_, _ = conn.Write([]byte("PING\r\n"))
	for one := []byte{0}; one[0] != '\n'; {
		if _, err := conn.Read(one); err != nil {
			return err
		}
	}
	return conn.SetDeadline(time.Time{})
}

// bounded returns a context with the longest time that a dial may take.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 5*patience)
}

// headStart is how long an address of a name has before the next is tried beside it.
const headStart = 250 * time.Millisecond

// connectTo connects to a host. If its name has several addresses, it tries them one after
// the other without ending earlier tries. A [net.Dialer] would spend all the time on the
// first address, if there are less than two seconds.
func connectTo(ctx context.Context, host, port string, by *net.Dialer) (net.Conn, error) {
	within, cancel := bounded(ctx)
	defer cancel()
	addresses, err := cmp.Or(by.Resolver, net.DefaultResolver).LookupHost(within, host)
	if err != nil {
		return nil, err
	}
	end, _ := within.Deadline()
	conn, failed := firstOf(len(addresses), min(headStart, time.Until(end)/time.Duration(len(addresses))), func(i int) (net.Conn, error) {
		return by.DialContext(within, "tcp", net.JoinHostPort(addresses[i], port))
	})
	return conn, cmp.Or(failed...)
}

// firstOf makes n tries to connect. Each begins when the one before has had a head start or
// a try has failed, and all go on together. It returns the first connection, or the error of
// each try. The context of the tries ends when it returns.
func firstOf[C io.Closer](n int, headStart time.Duration, try func(i int) (C, error)) (conn C, failed []error) {
	type tried struct {
		conn C
		err  error
	}
	tries := make(chan tried, n)
	next := time.NewTimer(0)
	defer next.Stop()
	for begun := 0; len(failed) < n; {
		select {
		case <-next.C:
			if i := begun; i < n {
				begun++
				go func() {
					conn, err := try(i)
					tries <- tried{conn, err}
				}()
				next.Reset(headStart)
			}
		case t := <-tries:
			if t.err == nil {
				left := begun - len(failed) - 1
				go func() {
					for range left {
						if late := <-tries; late.err == nil {
							_ = late.conn.Close()
						}
					}
				}()
				return t.conn, nil
			}
			failed = append(failed, t.err)
			next.Reset(0)
		}
	}
	return conn, failed
}

// certificates are the files of certificates that a URL names, "" for none. They are read
// for each connection, so that renewed certificates are used without a restart.
type certificates struct {
	ca, cert, key string

	mu    sync.Mutex // guards what was read from the files
	roots *x509.CertPool
	own   []tls.Certificate
}

// with returns the configuration of a connection. If a file cannot be read, it uses what it
// read before, and returns the error too.
func (c *certificates) with(config *tls.Config) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.read()
	config = config.Clone()
	if c.roots != nil {
		config.RootCAs = c.roots
	}
	if c.own != nil {
		config.Certificates = c.own
	}
	return config, err
}

// read reads the files.
func (c *certificates) read() error {
	return errors.Join(c.readRoots(), c.readOwn())
}

func (c *certificates) readRoots() error {
	if c.ca == "" {
		return nil
	}
	text, err := os.ReadFile(c.ca)
	if err != nil {
		return fmt.Errorf("cacert: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("cacert: %s has no certificate in PEM", c.ca)
	}
	c.roots = roots
	return nil
}

func (c *certificates) readOwn() error {
	if c.cert == "" {
		return nil
	}
	own, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("cert and key: %w", err)
	}
	c.own = []tls.Certificate{own}
	return nil
}

// trust stores the files of certificates that a URL's parameters name, and reads them.
func (c *certificates) trust(config *tls.Config, q url.Values) error {
	for _, name := range []string{"cacert", "cert", "key", "server_name"} {
		if q.Has(name) && config == nil {
			return fmt.Errorf("%s is for TLS: write rediss://", name)
		}
	}
	if q.Has("cert") != q.Has("key") {
		return errors.New("cert and key go together")
	}
	c.ca, c.cert, c.key = q.Get("cacert"), q.Get("cert"), q.Get("key")
	return c.read()
}
