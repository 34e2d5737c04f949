package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/service/rulesapi"
)

type nodesCmd struct {
	editorFlags `embed:""`
	Within      time.Duration `default:"10m" help:"Only servers seen within this time (${default}); 0s shows all."`
	jsonFlag    `embed:""`
}

// Help is what "stint rules nodes --help" says below the summary.
func (nodesCmd) Help() string {
	return `Every server that follows a database of rules writes there which rules it uses,
since when, and, if it could not take the newest, why.

For example:

    stint rules nodes --rules postgres://stint@127.0.0.1/stint
    stint rules nodes --rules sqlite:stint.db --json`
}

// Run lists nodes.
func (c *nodesCmd) Run(e *env) error {
	if c.Within < 0 {
		return usage("--within", "%v: at least 0s", c.Within)
	}
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	nodes, err := d.Nodes(e.ctx, c.Within)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, rulesapi.Nodes(nodes, true))
	}
	var b strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&b, "%s: revision %d, change %d, since %s, seen %s\n", shown(n.Name), n.Version.Revision, n.Version.Change, clock(n.Since), clock(n.Seen))
		if n.Error != "" {
			fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(n.Error, "\n", "\n    "))
		}
	}
	return wrap(e.out, b.String(), "    ")
}
