package main

import (
	"fmt"
	"strings"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/cmd/internal/service/desk"
)

type tokenCmd struct {
	Make   tokenMakeCmd   `cmd:"" help:"Make a token, which is shown once."`
	Revoke tokenRevokeCmd `cmd:"" help:"End all tokens of a name."`
	List   tokenListCmd   `cmd:"" help:"List tokens: names, roles and times."`
}

// Help is what "stint token --help" says below the summary.
func (tokenCmd) Help() string {
	return `A token lets its holder change rules over HTTP, at the admin address of a server
that follows the database. A viewer sees; an operator sets overrides and blocks
too; an admin publishes and rolls back rules and makes tokens too. The database
keeps hashes alone.

For example:

    stint token make ci --role admin --for 90d --rules sqlite:stint.db >token
    stint token revoke ci --rules sqlite:stint.db`
}

type tokenMakeCmd struct {
	deskFlags  `embed:""`
	authorFlag `embed:""`
	Name       string `arg:"" help:"Whose it is: the author of what is done with it."`
	Role       string `enum:"viewer,operator,admin" default:"viewer" help:"What it may do: viewer (the default), operator or admin."`
	For        string `placeholder:"DURATION" help:"How long, such as 12h or 90d. The default is for good."`
}

// Run makes a token.
func (c *tokenMakeCmd) Run(e *env) error {
	lasts, err := desk.ParseLasts(c.For)
	if err != nil {
		return &usageError{"--for", err}
	}
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // what was written is committed
	text, err := d.NewToken(e.ctx, c.author(), c.Name, rulesdb.Role(c.Role), lasts)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, text)
	return err
}

type tokenRevokeCmd struct {
	deskFlags  `embed:""`
	authorFlag `embed:""`
	Name       string `arg:"" help:"Whose tokens."`
}

// Run revokes tokens.
func (c *tokenRevokeCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // what was written is committed
	return d.RevokeToken(e.ctx, c.author(), c.Name)
}

type tokenListCmd struct {
	deskFlags `embed:""`
	JSON      bool `name:"json" help:"Write a JSON array."`
}

// Run lists tokens.
func (c *tokenListCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	tokens, err := d.Tokens(e.ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, desk.List(tokens, desk.TokenOf))
	}
	var b strings.Builder
	for _, t := range tokens {
		fmt.Fprintf(&b, "%s: %s, made %s", shown(t.Name), t.Role, clock(t.Created))
		if !t.Expires.IsZero() {
			fmt.Fprintf(&b, ", until %s", clock(t.Expires))
		}
		if !t.Revoked.IsZero() {
			fmt.Fprintf(&b, ", revoked %s", clock(t.Revoked))
		}
		b.WriteByte('\n')
	}
	return wrap(e.out, b.String(), "    ")
}
