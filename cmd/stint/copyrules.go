package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rules/rulesredis"
	"github.com/stint-dev/stint/service/rules/rulesworker"
)

type copyCmd struct {
	From             string `env:"STINT_WORKER_FROM" placeholder:"URL" help:"The database of rules: postgres://…, mysql://… or sqlite:FILE."`
	FromPasswordFile string `env:"STINT_WORKER_FROM_PASSWORD_FILE" placeholder:"FILE" help:"A file with the database's password, so that the URL needs none."`
	To               string `env:"STINT_WORKER_TO" placeholder:"URL|DIRECTORY" help:"Where servers read the rules: redis://HOST:6379, with ?prefix=NAME for another prefix than stint; or a directory."`
	ToPasswordFile   string `env:"STINT_WORKER_TO_PASSWORD_FILE" placeholder:"FILE" help:"A file with the password of the Redis, so that the URL needs none."`
	Node             string `env:"STINT_NODE" placeholder:"NAME" help:"The name of this worker among all workers. The default is the host name and something random."`
	retentionFlags   `embed:""`
	logFlag          `embed:""`
}

// Help is what "stint rules copy --help" says below the summary.
func (copyCmd) Help() string {
	return `The database sees one reader then, however many servers there are: they read
with --rules redis://… or --rules dir:DIRECTORY. Run several workers: one works,
and another takes over within 5 s when it is gone.

For example:

    stint rules copy --from postgres://stint@127.0.0.1/stint --to redis://127.0.0.1:6379
    stint serve --rules redis://127.0.0.1:6379

    stint rules copy --from postgres://stint@127.0.0.1/stint --to /var/lib/stint
    stint serve --rules dir:/var/lib/stint`
}

// Run works until SIGTERM or SIGINT.
func (c *copyCmd) Run(e *env) error {
	ctx, stop := signal.NotifyContext(e.ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch {
	case c.From == "":
		return usage("--from", "missing: write the database of rules, such as --from postgres://stint@127.0.0.1/stint")
	case c.To == "":
		return usage("--to", "missing: write where servers read, such as --to redis://127.0.0.1:6379 or a directory")
	}
	if c.Node == "" {
		host, _ := os.Hostname() // only people read it
		c.Node = "worker " + host + " " + rand.Text()[:6]
	}
	logger := c.logger(e)
	db, err := rulesdb.Open(c.From, rulesdb.Options{PasswordFile: c.FromPasswordFile, Node: c.Node})
	if err != nil {
		return &usageError{"--from", err}
	}
	defer db.Close() // what was written is committed
	if err := checkSchema(ctx, db); err != nil {
		return err
	}
	to, err := c.target()
	if err != nil {
		return err
	}
	defer to.Close() // an error loses nothing: the rules are published
	var background sync.WaitGroup
	defer background.Wait()
	if err := c.retain(ctx, db, c.Node, &background, logger); err != nil {
		return err
	}
	c.work(ctx, db, to, logger)
	return nil
}

// work publishes until ctx ends.
func (c *copyCmd) work(ctx context.Context, db *rulesdb.DB, to rulesworker.Target, logger *slog.Logger) {
	logger.Info("worker: begins", "from", db.String(), "to", to.String(), "worker", c.Node)
	rulesworker.New(rulesworker.Options{
		From: db, To: to, Name: c.Node, Log: logger,
		Check: func(name string, document []byte) error {
			_, err := checkRules(name, document)
			return err
		},
	}).Run(ctx)
	logger.Info("worker: stopped", "worker", c.Node)
}

// target opens what --to names. It does not connect.
func (c *copyCmd) target() (rulesworker.Target, error) {
	switch scheme, _, ok := strings.Cut(c.To, "://"); {
	case ok && (scheme == "redis" || scheme == "rediss" || scheme == "unix"):
		s, err := rulesredis.Open(c.To, c.ToPasswordFile)
		if err != nil {
			return nil, &usageError{"--to", err}
		}
		return rulesworker.Redis(s), nil
	case ok:
		return nil, usage("--to", "%q is no place for rules: write redis://HOST:6379 or a directory", scheme)
	}
	return rulesworker.Directory(strings.TrimPrefix(c.To, "dir:")), nil
}
