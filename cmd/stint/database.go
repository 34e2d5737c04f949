package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rules/rulescopy"
	"github.com/stint-dev/stint/service/rules/ruleshttp"
	"github.com/stint-dev/stint/service/rules/rulesredis"
	"github.com/stint-dev/stint/service/rules/rulesworker"
	"github.com/stint-dev/stint/service/rules/rulesxds"
)

// databaseFlags say which database the rules are in.
type databaseFlags struct {
	Rules             string `env:"STINT_RULES" placeholder:"URL" help:"Where the rules are, instead of in a file: a database (sqlite:FILE, postgres://… or mysql://…); what stint rules copy publishes (redis://… or dir:DIRECTORY); a file on a server (https://…, fetched with ETag); or a control plane (xdss://…, as of Envoy Gateway). Put a URL with a password into $STINT_RULES, or the password into a file."`
	RulesPasswordFile string `env:"STINT_RULES_PASSWORD_FILE" placeholder:"FILE" more:"" help:"A file with the password of the database or Redis, or the token for an https URL. It is read for each connection."`
	RulesCopy         string `env:"STINT_RULES_COPY" placeholder:"FILE" more:"" help:"A file for the last valid copy of the rules. The program starts with it while the database is unavailable. The default is a file in the user's cache directory; none keeps no copy."`
	Node              string `env:"STINT_NODE" placeholder:"NAME" more:"" help:"The name of this node in the database. The default is the host name and the port."`
}

// openRulesDB opens the database of --rules.
func (c *databaseFlags) openRulesDB() (*rulesdb.DB, error) {
	db, err := rulesdb.Open(c.Rules, rulesdb.Options{PasswordFile: c.RulesPasswordFile, Node: c.Node})
	if err != nil {
		if _, missing := os.Stat(c.Rules); missing == nil {
			return nil, usage("--rules", "%s is a file: write -c %[1]s for a file of rules, --rules sqlite:%[1]s for a database", c.Rules)
		}
		return nil, &usageError{"--rules", err}
	}
	return db, nil
}

// copyFile returns the file for the last valid copy of the rules, "" if none is kept.
func (c *databaseFlags) copyFile(logger *slog.Logger) string {
	switch c.RulesCopy {
	case "none":
		return ""
	case "":
		if strings.HasPrefix(c.Rules, "sqlite:") || strings.HasPrefix(c.Rules, "dir:") {
			return "" // the rules are a file of this machine itself
		}
		dir, err := os.UserCacheDir()
		if err != nil { // a service without a home directory
			logger.Warn("rules: no copy is kept: this node cannot start with these rules while the source is gone", "err", err,
				"hint", "--rules-copy FILE keeps it there; --rules-copy none says that none is wanted")
			return ""
		}
		sum := sha256.Sum256([]byte(c.Rules))
		return filepath.Join(dir, "stint", hex.EncodeToString(sum[:8])+".rules")
	}
	return c.RulesCopy
}

// A ruleSource is a source of rules to which a node may report what it holds.
type ruleSource struct {
	rulesource.Source
	name   string
	report func(ctx context.Context, n rules.Node) error // nil if the source takes no reports
	// patience is how long the first rules may take; 0 is the default.
	patience time.Duration
}

// openSource opens the source that --rules names. It connects only to a database, to
// refuse a schema that this program cannot use. A control plane's configuration follows that of the
// last copy of the rules in a file, if there is one.
func (c *databaseFlags) openSource(ctx context.Context, file string, logger *slog.Logger) (*ruleSource, error) {
	scheme, rest, _ := strings.Cut(c.Rules, ":")
	switch scheme {
	case "https", "http":
		s, err := ruleshttp.Open(c.Rules, c.RulesPasswordFile)
		if err != nil {
			return nil, &usageError{"--rules", err}
		}
		return &ruleSource{Source: s, name: s.String()}, nil
	case "redis", "rediss", "valkey", "valkeys", "unix":
		s, err := rulesredis.Open(c.Rules, c.RulesPasswordFile)
		if err != nil {
			return nil, &usageError{"--rules", err}
		}
		report := func(ctx context.Context, n rules.Node) error { return s.Report(ctx, c.row(n)) }
		return &ruleSource{Source: s, name: s.String(), report: report}, nil
	case "xds", "xdss":
		last, _ := rulescopy.NewFile(file).Last()
		s, err := rulesxds.Open(c.Rules, last.Kept, logger)
		if err != nil {
			return nil, &usageError{"--rules", err}
		}
		// As envoyproxy/ratelimit, this process waits for a control plane that
		// starts later.
		return &ruleSource{Source: s, name: s.String(), patience: math.MaxInt64}, nil
	case "dir":
		return &ruleSource{Source: rulesworker.Published(rest), name: c.Rules}, nil
	}
	db, err := c.openRulesDB()
	if err != nil {
		return nil, err
	}
	if err := checkSchema(ctx, db); err != nil {
		_ = db.Close() // it cannot be used
		return nil, err
	}
	report := func(ctx context.Context, n rules.Node) error { return db.Report(ctx, c.row(n)) }
	return &ruleSource{Source: db, name: db.String(), report: report}, nil
}

// row returns the row of this node in the table of nodes.
func (c *databaseFlags) row(n rules.Node) rulesdb.Node {
	return rulesdb.Node{Name: c.Node, Version: n.Version, Hash: n.Hash, Since: n.Since, Error: n.Error}
}

// follow opens the source that --rules names, and reads the first rules.
func (c *databaseFlags) follow(ctx context.Context, logger *slog.Logger) (rulesource.Source, *rules.Follower, *rules.File, error) {
	file := c.copyFile(logger)
	s, err := c.openSource(ctx, file, logger)
	if err != nil {
		return nil, nil, nil, err
	}
	follower, first, err := rules.Follow(ctx, rules.Following{
		Source: s.Source, Name: s.name, Copy: file, Log: logger, Report: s.report, Patience: s.patience,
	})
	if err != nil {
		_ = s.Close() // it was read from
		return nil, nil, nil, err
	}
	return s.Source, follower, first, nil
}

// schemaWithin is how long a database may take to say which schema it has.
const schemaWithin = 2 * time.Second

// checkSchema refuses a database whose schema this program cannot use. A database that
// does not answer is not refused.
func checkSchema(ctx context.Context, db *rulesdb.DB) error {
	ctx, stop := context.WithTimeout(ctx, schemaWithin)
	defer stop()
	err := db.CheckSchema(ctx)
	if _, wrong := errors.AsType[*rulesdb.SchemaError](err); wrong {
		return err
	}
	return nil
}
