package redisstore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
)

// Credentials are what a connection logs in with, such as a token that is valid for some
// minutes.
type Credentials struct {
	// Username is the name of an ACL user; "" is the default user.
	Username string
	// Password may be a token.
	Password string
	// Until, if it is not zero, is when open connections log in again.
	Until time.Time
}

const (
	// fileEvery is how often a file with a password is read again for open connections.
	// New connections read it at once.
	fileEvery = time.Minute
	// renewAgain is the pause after a failed renewal of open connections, and the least
	// time between two renewals.
	renewAgain = time.Second
)

// errCredentials is the error of a connection for which there are no credentials.
var errCredentials = fmt.Errorf("%w: credentials", ErrNotExecuted)

// A login asks for credentials, for each new connection and again for open ones. It
// implements [auth.StreamingCredentialsProvider]: go-redis logs an open connection in again
// when no call is on it.
type login struct {
	get     func(ctx context.Context) (Credentials, error)
	options redis.UniversalOptions // the servers, without credentials

	mu    sync.Mutex // guards what follows
	open  map[auth.CredentialsListener]bool
	last  Credentials // the credentials in use
	renew *time.Timer // logs open connections in again; nil while no credentials end
	at    time.Time   // when renew fires
}

// logInBy makes connections ask get for credentials. Behind Sentinels, open connections do not
// log in again: the client of go-redis v9.23.0 for Sentinels fails with a streaming provider.
func logInBy(o *redis.UniversalOptions, get func(ctx context.Context) (Credentials, error)) {
	o.Username, o.Password = "", ""
	l := &login{get: get, options: *o, open: make(map[auth.CredentialsListener]bool)}
	if o.MasterName == "" {
		o.StreamingCredentialsProvider = l
		return
	}
	o.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
		c, err := l.ask()
		return c.Username, c.Password, err
	}
}

// Subscribe implements [auth.StreamingCredentialsProvider]. go-redis calls it for a new
// connection.
func (l *login) Subscribe(to auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	c, _, err := l.current()
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[to] = true
	l.renewBy(c.Until)
	return auth.NewBasicCredentials(c.Username, c.Password), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.open, to); len(l.open) == 0 {
			l.rest()
		}
		return nil
	}, nil
}

// ask asks for credentials. go-redis passes no context of a call, so it sets its own deadline.
func (l *login) ask() (Credentials, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	c, err := l.get(ctx)
	if err != nil {
		return c, fmt.Errorf("%w: %w", errCredentials, err)
	}
	return c, nil
}

// current returns the credentials to log in with now, and whether they are new. While
// connections are open, new credentials that the server refuses do not replace the old.
func (l *login) current() (c Credentials, changed bool, err error) {
	c, err = l.ask()
	if err != nil {
		return c, false, err
	}
	l.mu.Lock()
	last, some := l.last, len(l.open) > 0
	l.mu.Unlock()
	changed = c.Username != last.Username || c.Password != last.Password
	if changed && some && !l.accepted(c) {
		last.Until = time.Now().Add(renewAgain)
		return last, false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = c
	return c, changed, nil
}

// accepted asks a server, on a connection of its own, whether credentials are right.
func (l *login) accepted(c Credentials) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	o := l.options
	o.Username, o.Password, o.PoolSize = c.Username, c.Password, 1
	client := redis.NewUniversalClient(&o)
	defer client.Close()
	err := client.Ping(ctx).Err()
	return err == nil || word(replied(err)) == "NOPERM"
}

// renewBy makes open connections log in again by a time; the zero time is never. The lock is
// held.
func (l *login) renewBy(at time.Time) {
	if at.IsZero() || l.renew != nil && !at.Before(l.at) {
		return
	}
	l.rest()
	wait := time.Until(at)
	if wait <= 0 { // or it would ask without a pause
		wait = renewAgain
	}
	l.at, l.renew = at, time.AfterFunc(wait, l.again)
}

// rest forgets when to renew. The lock is held.
func (l *login) rest() {
	if l.renew != nil {
		l.renew.Stop()
		l.renew = nil
	}
}

// again makes open connections log in again, unless there are no new credentials that the
// server accepts.
func (l *login) again() {
	c, changed, err := l.current()
	if err != nil {
		c.Until = time.Now().Add(renewAgain)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest()
	if len(l.open) > 0 {
		l.renewBy(c.Until)
	}
	if err != nil || !changed || c.Username == "" && c.Password == "" {
		return
	}
	for one := range l.open {
		one.OnNext(auth.NewBasicCredentials(c.Username, c.Password))
	}
}

// readPassword returns a function that reads a password, the first line of a file.
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
