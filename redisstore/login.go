package redisstore

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Credentials are what a connection logs in with, such as tokens that are valid for
// some minutes.
type Credentials struct {
	// Username is an ACL user's; "" is the default user.
	Username string
	// Password may be a token.
	Password string
	// Until, if it is not zero, is when open connections log in again.
	Until time.Time
}

const (
	// fileEvery is how often a file with a password is read again for connections that
	// are open. New ones read it at once.
	fileEvery = time.Minute
	// renewAgain is until an open connection asks again for credentials that could not
	// be had.
	renewAgain = time.Second
)

// errCredentials is for a connection that has nothing to log in with.
var errCredentials = fmt.Errorf("%w: credentials", ErrNotExecuted)

// A login asks for credentials, for each connection that is made and again for
// those that are open. It knows these apart, since on an open connection calls are on
// their way: where credentials cannot be had, a new connection fails before anything
// is sent, and an open one stays as it is.
type login struct {
	get       func(ctx context.Context) (Credentials, error)
	sentinel  rueidis.AuthCredentials // of Sentinels, which do not get those of the servers
	sentinels *net.Resolver           // marks the dialer of connections to Sentinels
	takes     time.Duration           // the most that the login of an open connection does
	renewed   atomic.Int64            // when an open connection last got some, ns since the Unix epoch
}

// logInBy has connections ask for credentials.
func logInBy(o *rueidis.ClientOption, get func(ctx context.Context) (Credentials, error)) *login {
	l := &login{get: get, sentinels: new(net.Resolver), takes: 2 * o.ConnWriteTimeout}
	l.sentinel = rueidis.AuthCredentials{Username: o.Sentinel.Username, Password: o.Sentinel.Password}
	o.Sentinel.Dialer.Resolver = l.sentinels
	o.Username, o.Password = "", ""
	o.AuthCredentialsFn = l.credentials
	dial := o.DialCtxFn
	o.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, address, dialer, config)
		if err != nil {
			return nil, err
		}
		again := func(ctx context.Context) (net.Conn, error) { return dial(ctx, address, dialer, config) }
		return asking{conn, &askedAt{Addr: conn.RemoteAddr(), sentinel: dialer.Resolver == l.sentinels, again: again}}, nil
	}
	return l
}

// asking is a connection, which rueidis names by its address when it asks for
// credentials.
type asking struct {
	net.Conn
	at *askedAt
}

// RemoteAddr implements [net.Conn].
func (c asking) RemoteAddr() net.Addr { return c.at }

// askedAt is the address of one connection.
type askedAt struct {
	net.Addr
	sentinel bool
	again    func(context.Context) (net.Conn, error) // makes another connection to it
	open     atomic.Bool                             // it has asked before
}

// accepts asks the server, on a connection of its own, whether credentials are right.
// Valkey (seen on 8.0) does not answer an AUTH that it refuses while answers to
// calls before it wait to be sent: each later answer would be taken for that of the call
// before. So no AUTH that may be refused goes to a connection that has calls on it.
func (a *askedAt) accepts(ctx context.Context, c Credentials) error {
	if c.Username == "" && c.Password == "" { // nothing is sent then
		return nil
	}
	conn, err := a.again(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, command(auth(c.Username, c.Password)...)); err != nil {
		return err
	}
	_, err = readReply(bufio.NewReader(conn), 0)
	return err
}

// credentials returns what a connection logs in with. It has no context of its own, so that
// of the store bounds a call. An open connection is told to send nothing where
// credentials cannot be had or are refused: an error would end it, with the calls on
// their way.
func (l *login) credentials(of rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	at, _ := of.Address.(*askedAt)
	if at != nil && at.sentinel {
		return l.sentinel, nil
	}
	open := at != nil && at.open.Swap(true)
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	c, err := l.get(ctx)
	if err == nil && open {
		err = at.accepts(ctx, c)
	}
	switch {
	case err != nil && open:
		return rueidis.AuthCredentials{RefreshAfter: time.Now().Add(renewAgain)}, nil
	case err != nil:
		return rueidis.AuthCredentials{}, fmt.Errorf("%w: %w", errCredentials, err)
	case open:
		l.renewed.Store(time.Now().UnixNano())
	}
	if now := time.Now(); !c.Until.IsZero() && c.Until.Before(now) {
		c.Until = now.Add(renewAgain) // else it would ask without a pause
	}
	return rueidis.AuthCredentials{Username: c.Username, Password: c.Password, RefreshAfter: c.Until}, nil
}

// mayHaveEnded reports whether an error, which is no reply to a call, may be that of a
// login on an open connection that the server refused: then the connection has ended,
// and the call may have run.
func (l *login) mayHaveEnded(err error) bool {
	if l == nil {
		return false
	}
	_, said := rueidis.IsRedisErr(err)
	return said && time.Since(time.Unix(0, l.renewed.Load())) < l.takes
}

// readPassword returns what reads a password from a file: its first line.
func readPassword(user, file string) func(context.Context) (Credentials, error) {
	return func(context.Context) (Credentials, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return Credentials{}, err
		}
		line, _, _ := strings.Cut(string(text), "\n")
		line = strings.TrimRight(line, "\r")
		if line == "" {
			return Credentials{}, fmt.Errorf("%s has no password in its first line", file)
		}
		return Credentials{Username: user, Password: line, Until: time.Now().Add(fileEvery)}, nil
	}
}
