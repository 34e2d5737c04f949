package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/cmd/internal/service/rules"
	"github.com/stint-dev/stint/cmd/internal/service/ruleshttp"
)

// databaseFlags say which database the rules are in.
type databaseFlags struct {
	Rules             string `env:"STINT_RULES" placeholder:"URL" help:"The database that the rules are in, in place of a file: sqlite:FILE, postgres://…, mysql://…; or https://… of a file, asked by ETag. Put a URL with a password into $$STINT_RULES, or the password into a file."`
	RulesPasswordFile string `env:"STINT_RULES_PASSWORD_FILE" placeholder:"FILE" help:"The password of the database, or the token for an https URL. It is read at each connect."`
	RulesCopy         string `env:"STINT_RULES_COPY" placeholder:"FILE" help:"The last good copy of the rules, with which the program starts while the database is gone. The default is a file in the user's cache directory; none keeps no copy."`
	Node              string `env:"STINT_NODE" placeholder:"NAME" help:"What this node calls itself in the database. The default is the host's name."`
}

// openRulesDB opens the database of --rules.
func (c *databaseFlags) openRulesDB() (*rulesdb.DB, error) {
	db, err := rulesdb.Open(c.Rules, rulesdb.Options{PasswordFile: c.RulesPasswordFile, Node: c.Node})
	if err != nil {
		return nil, &usageError{"--rules", err}
	}
	return db, nil
}

// copyFile returns where the last good copy is kept, "" for none.
func (c *databaseFlags) copyFile() string {
	switch c.RulesCopy {
	case "none":
		return ""
	case "":
		if strings.HasPrefix(c.Rules, "sqlite:") {
			return "" // the database is a file of this machine itself
		}
		dir, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		sum := sha256.Sum256([]byte(c.Rules))
		return filepath.Join(dir, "stint", hex.EncodeToString(sum[:8])+".rules")
	}
	return c.RulesCopy
}

// follow reads the first rules of the database, or of an https URL.
func (c *databaseFlags) follow(logger *slog.Logger) (rulesource.Source, *rules.Follower, *rules.File, error) {
	if strings.HasPrefix(c.Rules, "https:") || strings.HasPrefix(c.Rules, "http:") {
		return c.followURL(logger)
	}
	db, err := c.openRulesDB()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := checkSchema(db); err != nil {
		_ = db.Close() // it cannot be used
		return nil, nil, nil, err
	}
	follower, file, err := rules.Follow(context.Background(), rules.Following{
		Source: db, Name: db.String(), Copy: c.copyFile(), Log: logger,
		Report: func(ctx context.Context, n rules.Node) error {
			return db.Report(ctx, rulesdb.Node{Version: n.Version, Hash: n.Hash, Since: n.Since, Error: n.Error})
		},
	})
	if err != nil {
		_ = db.Close() // it was read from
		return nil, nil, nil, err
	}
	return db, follower, file, nil
}

// followURL reads the first rules of an https URL.
func (c *databaseFlags) followURL(logger *slog.Logger) (rulesource.Source, *rules.Follower, *rules.File, error) {
	source, err := ruleshttp.Open(c.Rules, c.RulesPasswordFile)
	if err != nil {
		return nil, nil, nil, &usageError{"--rules", err}
	}
	follower, file, err := rules.Follow(context.Background(), rules.Following{Source: source, Name: source.String(), Copy: c.copyFile(), Log: logger})
	if err != nil {
		_ = source.Close() // it was read from
		return nil, nil, nil, err
	}
	return source, follower, file, nil
}

// schemaWithin is how long a database may take to say which schema it has.
const schemaWithin = 2 * time.Second

// checkSchema refuses a database whose schema this program cannot use. One that
// is gone may be right.
func checkSchema(db *rulesdb.DB) error {
	ctx, stop := context.WithTimeout(context.Background(), schemaWithin)
	defer stop()
	err := db.CheckSchema(ctx)
	if _, wrong := errors.AsType[*rulesdb.SchemaError](err); wrong {
		return err
	}
	return nil
}
