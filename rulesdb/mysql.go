package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

var mySQL = &dialect{
	name:       "mysql",
	types:      strings.NewReplacer("{{document}}", "LONGBLOB", "{{key}}", "VARBINARY(512)"),
	micros:     "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
	upsert:     func(string) string { return " ON DUPLICATE KEY UPDATE " },
	value:      func(column string) string { return "VALUES(" + column + ")" },
	ddlCommits: true,
	snapshot:   &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
	changed:    func(context.Context, *DB) <-chan struct{} { return nil },
}

// openMySQL opens mysql://user:password@host:3306/database, of MySQL or MariaDB.
// tls=true or tls=skip-verify asks for TLS.
func openMySQL(u *url.URL, password func() (string, error)) (*sql.DB, error) {
	if u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, errors.New("write mysql://user@host:3306/database")
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	if u.Port() == "" {
		c.Addr = u.Hostname() + ":3306"
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Timeout, c.ReadTimeout, c.WriteTimeout = dialTimeout, time.Minute, time.Minute
	c.ParseTime, c.InterpolateParams = false, false
	c.Params = map[string]string{"sql_mode": "'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'"}
	for name, values := range u.Query() {
		switch name {
		case "tls":
			c.TLSConfig = values[0]
		case "socket":
			c.Net, c.Addr = "unix", values[0]
		default:
			return nil, fmt.Errorf("parameter %q: mysql takes tls and socket", name)
		}
	}
	if password != nil {
		err := c.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) (err error) {
			c.Passwd, err = password()
			return err
		}))
		if err != nil {
			return nil, err
		}
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
