package rulesdb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stint-dev/stint/internal/ports"
)

var mySQL = &dialect{
	name:       "mysql",
	types:      strings.NewReplacer("{{document}}", "LONGBLOB", "{{key}}", "VARBINARY(512)", "{{text}}", " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
	micros:     "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
	upsert:     func(string) string { return " ON DUPLICATE KEY UPDATE " },
	value:      func(column string) string { return "VALUES(" + column + ")" },
	ddlCommits: true,
	snapshot:   &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
	watch:      func(context.Context, *DB) {}, // MySQL announces no changes
	refused: func(err error) bool {
		_, answered := errors.AsType[*mysql.MySQLError](err)
		return answered
	},
}

// openMySQL opens mysql://user:password@host:3306/database, of MySQL or MariaDB.
func openMySQL(u *url.URL, password func() (string, error)) (*sql.DB, error) {
	if u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, errors.New("write mysql://user@host:3306/database")
	}
	if err := ports.Check(u); err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Timeout, c.ReadTimeout, c.WriteTimeout = dialTimeout, time.Minute, time.Minute
	c.ParseTime, c.InterpolateParams = false, false
	c.Logger = &mysql.NopLogger{} // its lines on stderr repeat the errors
	// UNIX_TIMESTAMP reads SYSDATE in the session's time zone. In a zone that sets clocks back, one
	// hour a year would be ambiguous.
	c.Params = map[string]string{"sql_mode": "'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'", "time_zone": "'+00:00'"}
	trust, err := mySQLParameters(u, c)
	if err != nil {
		return nil, err
	}
	err = c.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) (err error) {
		if password != nil {
			if c.Passwd, err = password(); err != nil {
				return err
			}
		}
		if trust != nil {
			c.TLS, err = trust.config()
		}
		return err
	}))
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// mySQLParameters reads the parameters of a URL. It returns a nil trust if they name no
// certificates.
func mySQLParameters(u *url.URL, c *mysql.Config) (*trust, error) {
	t := &trust{name: u.Hostname()}
	for name, values := range u.Query() {
		switch name {
		case "tls":
			c.TLSConfig = values[0]
		case "socket":
			c.Net, c.Addr = "unix", values[0]
		case "ssl-ca":
			t.ca = values[0]
		case "ssl-cert":
			t.cert = values[0]
		case "ssl-key":
			t.key = values[0]
		default:
			return nil, fmt.Errorf("parameter %q: mysql takes tls, ssl-ca, ssl-cert, ssl-key and socket", name)
		}
	}
	switch {
	case (t.cert == "") != (t.key == ""):
		return nil, errors.New("ssl-cert goes with ssl-key: give both, or none")
	case t.ca == "" && t.cert == "":
		return nil, nil
	case c.TLSConfig != "" && c.TLSConfig != "true":
		return nil, fmt.Errorf("tls=%s: with ssl-ca or ssl-cert the server's certificate is verified: write tls=true, or leave it out", c.TLSConfig)
	}
	c.TLSConfig = ""
	if _, err := t.config(); err != nil {
		return nil, err
	}
	return t, nil
}

// A trust names the certificate files of connections. They are read at each connect, so that they
// may be renewed while the program runs.
type trust struct {
	name          string // the name that the server's certificate must have
	ca, cert, key string
}

func (t *trust) config() (*tls.Config, error) {
	c := &tls.Config{ServerName: t.name, MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("ssl-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ssl-ca: %s: no certificate there: PEM with CERTIFICATE blocks", t.ca)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("ssl-cert, ssl-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
