package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// ParseURL returns what a URL says, as [Options].URL does: for a program that
// makes a client by itself. Beside the parameters that rueidis.ParseURL knows,
// such as addr, master_set and skip_verify, these are read; others are ignored:
//
//   - cacert names a file of certificates, in PEM, of those who vouch for the
//     servers, in place of the system's.
//   - cert and key name files of the certificate to show to servers, and of its
//     key.
//   - server_name is the name that the certificates of servers must have. Without
//     it that is the URL's host, and with addr or master_set the address that is
//     dialled.
//   - password_file names a file whose first line is the password: it is read for
//     each new connection, and for open ones once a minute.
//   - sentinel_username and sentinel_password are for Sentinels, which are not
//     told those of the servers.
//
// Several hosts, with commas between them, are the first one and addr of the
// others. With rediss:// Sentinels are asked over TLS too. Files are read at once. An
// error shows nothing of the URL but the name of a file.
func ParseURL(text string) (rueidis.ClientOption, error) {
	text = separate(text)
	o, err := rueidis.ParseURL(text)
	if err != nil {
		return o, errors.New("redisstore: the URL is not understood: write redis://[user:password@]host:port[/db], rediss:// or unix://")
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return o, errors.New("redisstore: the URL is not understood") // rueidis has parsed it too
	}
	q := parsed.Query()
	if err := trust(o.TLSConfig, q); err != nil {
		return o, fmt.Errorf("redisstore: the URL: %w", err)
	}
	if q.Has("password_file") {
		if o.Password != "" {
			return o, errors.New("redisstore: the URL: a password and password_file: one of them")
		}
		read := readPassword(o.Username, q.Get("password_file"))
		if _, err := read(context.Background()); err != nil {
			return o, fmt.Errorf("redisstore: the URL: password_file: %w", err)
		}
		o.Username, o.AuthCredentialsFn = "", askedFor(read)
	}
	switch {
	case o.TLSConfig == nil:
	case q.Has("server_name"):
		o.TLSConfig.ServerName = q.Get("server_name")
	case q.Has("addr"), q.Has("master_set"):
		o.TLSConfig.ServerName = "" // each is another host
	}
	if o.Sentinel.MasterSet != "" {
		o.Sentinel.TLSConfig = o.TLSConfig.Clone()
		o.Sentinel.Username, o.Sentinel.Password = q.Get("sentinel_username"), q.Get("sentinel_password")
		o.Sentinel.Dialer = o.Dialer
	}
	return o, nil
}

// separate returns a URL of several hosts with those behind the first as
// parameters.
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

// trust reads the certificates that parameters name.
func trust(config *tls.Config, q url.Values) error {
	for _, name := range []string{"cacert", "cert", "key", "server_name"} {
		if q.Has(name) && config == nil {
			return fmt.Errorf("%s is for TLS: write rediss://", name)
		}
	}
	if q.Has("cacert") {
		text, err := os.ReadFile(q.Get("cacert"))
		if err != nil {
			return fmt.Errorf("cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("cacert: %s has no certificate in PEM", q.Get("cacert"))
		}
	}
	switch {
	case q.Has("cert") != q.Has("key"):
		return errors.New("cert and key go together")
	case q.Has("cert"):
		own, err := tls.LoadX509KeyPair(q.Get("cert"), q.Get("key"))
		if err != nil {
			return fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return nil
}

// optionOf reads a URL. What stalls is given up within seconds, where rueidis
// would wait for ten; the topology of a Sentinel set is asked for besides being
// listened to.
func optionOf(text string, timeout time.Duration) (rueidis.ClientOption, error) {
	o, err := ParseURL(text)
	if err != nil {
		return o, err
	}
	o.DisableCache = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = max(patience, timeout)
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = max(patience, 2*timeout)
	}
	if o.Sentinel.MasterSet != "" {
		o.Sentinel.Dialer = o.Dialer
		o.Sentinel.TopologyRefreshInterval = time.Second
	}
	return o, nil
}
