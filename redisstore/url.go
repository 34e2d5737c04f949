package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/stint-dev/stint/internal/ports"
	"github.com/stint-dev/stint/internal/wording"
)

// parameters are the parameters that a URL may have.
var parameters = []string{
	"addr", "cacert", "cert", "client_name", "db", "dial_timeout", "key", "master_set", "password_file", "pool_size", "protocol",
	"sentinel_password", "sentinel_username", "server_name", "skip_verify",
}

// mostConnections is how many connections a store has with a server, unless the URL says.
const mostConnections = 100

// mostRedirects is how often a call is sent to another node, because a node does not serve
// its slot or the slot is moving.
const mostRedirects = 3

// ParseURL returns the options in a URL, which has the form of [Options].URL. It is for
// programs that make a client themselves, by [Connect] for example. The URL is
// redis://[user:password@]host:port[/db], rediss:// for TLS, or unix://path. It may have
// these parameters, and no others:
//
//   - addr is a further address of a cluster, or of a Sentinel. Several hosts, separated
//     by commas, stand for the first one and an addr for each of the others.
//   - master_set is the name by which Sentinels know the master. The URL's hosts are then
//     Sentinels, which with rediss:// are called over TLS too.
//   - sentinel_username and sentinel_password are the login of Sentinels, which do not get
//     the login of the servers.
//   - cacert names a file of CA certificates for the servers, in PEM, instead of the
//     system's.
//   - cert and key name the files of the certificate to show to servers, and of its
//     key. These files, too, are read for each new connection.
//   - server_name is the name that the certificates of servers must have. By default it is
//     the URL's host, or with addr or master_set the address that is dialed.
//   - skip_verify=true trusts any server.
//   - password_file names a file whose first line is the password: it is read for
//     each new connection, and for open ones once a minute.
//   - db is the number of the database, client_name the name in CLIENT LIST, protocol the
//     version of RESP (2 or 3), dial_timeout how long making a connection may take, and
//     pool_size the most connections with a server (100).
//
// ParseURL reads the files too. Errors show nothing of the URL except names of files.
func ParseURL(text string) (*redis.UniversalOptions, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	if u.read != nil {
		logInBy(&u.UniversalOptions, u.read)
	}
	return &u.UniversalOptions, nil
}

// A location is a URL that was read.
type location struct {
	redis.UniversalOptions
	dial dialer
	read func(context.Context) (Credentials, error) // reads a password from a file, if the URL names one
}

var errURL = errors.New("the URL is not understood: write redis://[user:password@]host:port[/db], rediss:// or unix://")

// parseURL is ParseURL, except that the caller makes connections use location.read.
func parseURL(text string) (*location, error) {
	u, err := url.Parse(separate(text))
	if err != nil {
		return nil, errURL
	}
	l := &location{UniversalOptions: redis.UniversalOptions{
		ContextTimeoutEnabled:    true,
		DialerRetries:            1, // the breaker tries again
		MaxRetries:               -1,
		MaxRedirects:             mostRedirects,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}}
	q := u.Query()
	for _, part := range []func(*url.URL, url.Values) error{l.address, l.settings, l.secure, l.logins} {
		if err := part(u, q); err != nil {
			return nil, err
		}
	}
	l.dial.most, l.Dialer = mostReply, l.dial.dial
	return l, nil
}

// address reads the addresses of the servers.
func (l *location) address(u *url.URL, q url.Values) error {
	switch {
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		l.Addrs = []string{u.Path}
		return known(q)
	case u.Scheme != "redis" && u.Scheme != "rediss", u.Opaque != "", u.Fragment != "":
		return errURL
	}
	if err := known(q); err != nil {
		return err
	}
	l.dial.host = cmp.Or(u.Hostname(), "localhost")
	l.Addrs = append([]string{net.JoinHostPort(l.dial.host, cmp.Or(u.Port(), "6379"))}, q["addr"]...)
	for _, address := range l.Addrs {
		if err := ports.CheckAddress(address); err != nil {
			return fmt.Errorf("the URL: %w", err)
		}
	}
	l.MasterName = q.Get("master_set")
	if db := strings.Trim(u.Path, "/"); db != "" && !q.Has("db") {
		q.Set("db", db)
	}
	return nil
}

// settings reads the name of the client and the parameters that are numbers.
func (l *location) settings(_ *url.URL, q url.Values) error {
	l.ClientName, l.PoolSize = q.Get("client_name"), mostConnections
	for _, n := range []struct {
		name        string
		to          *int
		least, most int
	}{{"db", &l.DB, 0, 1 << 20}, {"protocol", &l.Protocol, 2, 3}, {"pool_size", &l.PoolSize, 1, 1 << 20}} {
		if !q.Has(n.name) {
			continue
		}
		v, err := strconv.Atoi(q.Get(n.name))
		if err != nil || v < n.least || v > n.most {
			return fmt.Errorf("the URL: %s: a whole number from %d to %d", n.name, n.least, n.most)
		}
		*n.to = v
	}
	if q.Has("dial_timeout") {
		d, err := time.ParseDuration(q.Get("dial_timeout"))
		if err != nil || d <= 0 {
			return errors.New("the URL: dial_timeout: a duration above zero, such as 2s")
		}
		l.DialTimeout = d
	}
	return nil
}

// secure reads the parameters of TLS.
func (l *location) secure(u *url.URL, q url.Values) error {
	skip := q.Get("skip_verify")
	if u.Scheme == "rediss" {
		l.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skip == "true"} //nolint:gosec // the URL says so
		switch {
		case q.Has("server_name"):
			l.TLSConfig.ServerName = q.Get("server_name")
		case !q.Has("addr") && !q.Has("master_set"): // else each server has its own host
			l.TLSConfig.ServerName = l.dial.host
		}
	}
	if q.Has("skip_verify") && skip != "true" && skip != "false" {
		return errors.New("the URL: skip_verify: true or false")
	}
	if err := l.dial.files.trust(l.TLSConfig, q); err != nil {
		return fmt.Errorf("the URL: %w", err)
	}
	l.dial.config = l.TLSConfig
	return nil
}

// logins reads users and passwords.
func (l *location) logins(u *url.URL, q url.Values) error {
	l.Username = u.User.Username()
	l.Password, _ = u.User.Password()
	l.SentinelUsername, l.SentinelPassword = q.Get("sentinel_username"), q.Get("sentinel_password")
	if !q.Has("password_file") {
		return nil
	}
	if l.Password != "" {
		return errors.New("the URL: a password and password_file: one of them")
	}
	l.read = readPassword(l.Username, q.Get("password_file"))
	if _, err := l.read(context.Background()); err != nil {
		return fmt.Errorf("the URL: password_file: %w", err)
	}
	return nil
}

// known refuses an unknown parameter. It shows only what looks like a name: anything else may
// be the end of a password with a question mark.
func known(q url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if slices.Contains(parameters, name) {
			continue
		}
		what := "a parameter is unknown"
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == "" {
			what = fmt.Sprintf("%.32q is no parameter", name)
			if near := wording.Nearest(name, slices.Values(parameters), 4); near != "" {
				return fmt.Errorf("the URL: %s: did you mean %s?", what, near)
			}
		}
		return fmt.Errorf("the URL: %s: there are %s", what, strings.Join(parameters, ", "))
	}
	return nil
}

// separate rewrites a URL of several hosts: all after the first become addr parameters.
func separate(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	user, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, hosts = authority[:at+1], authority[at+1:]
	}
	all := strings.Split(hosts, ",")
	if len(all) == 1 {
		return text
	}
	query := make(url.Values)
	for _, host := range all[1:] {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "6379")
		}
		query.Add("addr", host)
	}
	mark := "?"
	if strings.Contains(rest, "?") {
		mark = "&"
	}
	return scheme + "://" + user + all[0] + rest + mark + query.Encode()
}

// optionsOf reads a URL for a store. Connections log in with what get returns, unless it is
// nil.
func optionsOf(text string, timeout time.Duration, get func(context.Context) (Credentials, error)) (*redis.UniversalOptions, error) {
	l, err := parseURL(text)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	l.dial.most = mostDecision
	o := &l.UniversalOptions
	if get == nil {
		get = l.read
	}
	if get != nil {
		logInBy(o, get)
	}
	o.DialTimeout = cmp.Or(o.DialTimeout, min(max(patience, timeout), 2*patience)) // short, since hosts are tried one after the other
	o.ReadTimeout = max(patience, 2*timeout)
	return o, nil
}
