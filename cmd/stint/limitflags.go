package main

import (
	"errors"
	"log/slog"

	"github.com/stint-dev/stint/cmd/internal/service/proxy"
)

// limitFlags are rules on the command line: a file as an argument, or limits in
// place of one.
type limitFlags struct {
	File  string   `arg:"" optional:"" name:"file" help:"The rules file, as --config names it."`
	Limit []string `sep:"none" placeholder:"LIMIT" help:"In place of a rules file: how much each client may, such as '10/s burst 20'. Given several times, all of them hold at once."`
	Key   string   `default:"ip" help:"With --limit, what tells clients apart: ip (the client's address, IPv6 by /64), header.NAME (requests without it share one key) or none (all share one). Default: ${default}."`
}

// sources opens the rules of c, or the one of --limit and --key, by that name.
func (l *limitFlags) sources(name string, c *sourceFlags, logger *slog.Logger) (*sources, error) {
	switch {
	case l.File != "" && c.Config != "" && c.Config != l.File:
		return nil, usage("--config", "%s, and the argument is %s: give one of them", c.Config, l.File)
	case l.File != "":
		c.Config = l.File
	}
	switch {
	case len(l.Limit) == 0 && c.Config == "" && c.Rules == "":
		return nil, usage("--config", "missing: write the rules file, such as -c stint.yaml, how much each client may, such as --limit '10/s burst 20', or --rules and a database")
	case len(l.Limit) == 0:
		return c.open(logger)
	case c.Config != "":
		return nil, usage("--limit", "does not go with --config: the limits are the file's")
	case c.Rules != "":
		return nil, usage("--limit", "does not go with --rules: the limits are the database's")
	}
	if _, err := parseLimits("--limit", l.Limit); err != nil {
		return nil, err
	}
	f, err := proxy.OneRule(name, l.Key, l.Limit)
	if errors.Is(err, proxy.ErrKey) {
		return nil, &usageError{"--key", err}
	}
	if err != nil {
		return nil, &usageError{"--limit", err}
	}
	return c.openRules(f, logger)
}
