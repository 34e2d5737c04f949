package main

import (
	"errors"
	"fmt"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rulesapi"
)

type blockCmd struct {
	Set  blockSetCmd `cmd:"" default:"withargs" help:"Deny a customer for a while: stint block KEY says it as well."`
	End  blockEndCmd `cmd:"" help:"End a block, or with --server a ban."`
	List blockedCmd  `cmd:"" help:"List the keys that are denied now."`
}

// Help is what "stint block --help" says below the summary.
func (blockCmd) Help() string {
	return `A block is an override that denies. It ends by itself, or with stint block end. So
does a ban, which a limit began (5 per minute ban 1h): a server is asked to end it.
That limit then starts anew; other limits of the rule keep what the customer has used.

For example:

    stint block 192.0.2.7 --rule login --for 1h --rules sqlite:stint.db
    stint block list --server http://127.0.0.1:9090
    stint block end 192.0.2.7 --rule login --rules sqlite:stint.db`
}

type blockSetCmd struct {
	editorFlags   `embed:""`
	authorFlag    `embed:""`
	customerFlags `embed:""`
	Args          []string `arg:"" optional:"" name:"key" help:"The customer's key."`
	Rule          string   `required:"" placeholder:"NAME" help:"The rule under which the customer is denied."`
	lastsFlag     `embed:""`
	reasonFlag    `embed:""`
	jsonFlag      `embed:""`
}

// Help is what "stint block set --help" says below the summary.
func (blockSetCmd) Help() string {
	return `For example:

    stint block set 192.0.2.7 --rule login --for 1h --rules sqlite:stint.db
    stint block set --attribute header.x-api-key=partner-1 --rule api --for 10m \
        --reason 'sends the same order again and again'`
}

// Run blocks.
func (c *blockSetCmd) Run(e *env) error {
	customer, err := c.only(c.Args)
	if err != nil {
		return err
	}
	o := rulesource.Override{Rule: c.Rule, Block: true, Reason: c.Reason}
	return setOverride(e, &c.editorFlags, c.author(), customer, o, c.For, c.JSON)
}

type blockEndCmd struct {
	editorFlags   `embed:""`
	authorFlag    `embed:""`
	customerFlags `embed:""`
	Args          []string `arg:"" optional:"" name:"key" help:"The customer's key."`
	Rule          string   `required:"" placeholder:"NAME" help:"The rule under which the customer is denied."`
	reasonFlag    `embed:""`
}

// Run ends a block. An override that is no block stays.
func (c *blockEndCmd) Run(e *env) error {
	customer, err := c.only(c.Args)
	if err != nil {
		return err
	}
	o := rulesource.Override{Rule: c.Rule, Removed: true, Reason: c.Reason, Author: c.author()}
	banEnded := false
	err = changeOverride(e, &c.editorFlags, customer, o, false, func(k *rulesapi.Editor, o rulesource.Override) (was, now rulesource.Override, err error) {
		was, now, banEnded, err = k.Unblock(e.ctx, o)
		return was, now, err
	})
	if banEnded {
		fmt.Fprintln(e.out, "its ban has ended: the limit that began it starts anew")
	}
	if errors.Is(err, rulesdb.ErrNotFound) {
		err = fmt.Errorf("%w; what a key has used is forgotten by stint reset", err)
	}
	return err
}
