package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/rulesapi"
)

type tokenCmd struct {
	Make   tokenMakeCmd   `cmd:"" help:"Create a token, which is shown once."`
	Revoke tokenRevokeCmd `cmd:"" help:"End all tokens of a name."`
	List   tokenListCmd   `cmd:"" help:"List tokens: names, roles and times."`
	Usage  tokenUsageCmd  `cmd:"" help:"Create a token with which a customer sees the usage at /v1/usage."`
}

// Help is what "stint token --help" says below the summary.
func (tokenCmd) Help() string {
	return `A token lets its holder see and change things over HTTP, at the admin address of
a server. A viewer sees; an operator sets overrides and blocks too; an admin
publishes and rolls back rules and makes tokens too. Tokens are kept in the
database of the rules, or in a file that servers read as --operator-token-file;
both keep hashes alone.

For example:

    stint token make ci --role admin --for 90d --rules sqlite:stint.db >token
    stint token revoke ci --rules sqlite:stint.db
    stint token make anna --role operator --file tokens >token`
}

type tokenMakeCmd struct {
	editorFlags   `embed:""`
	tokenFileFlag `embed:""`
	authorFlag    `embed:""`
	Name          string `arg:"" help:"The name of its owner, who is the author of what is done with it."`
	Role          string `enum:"viewer,operator,admin" default:"viewer" help:"What it may do: viewer (the default), operator or admin."`
	For           string `placeholder:"DURATION" help:"How long it is valid, such as 12h or 90d. The default is without an end."`
}

// Run makes a token.
func (c *tokenMakeCmd) Run(e *env) error {
	lasts, err := rulesapi.ParseLasts(c.For)
	if err != nil {
		return &usageError{"--for", err}
	}
	text, err := c.make(e, lasts)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, text)
	return err
}

func (c *tokenMakeCmd) make(e *env, lasts time.Duration) (text string, err error) {
	if c.File != "" {
		return c.tokenFileFlag.make(c.Name, c.Role, lasts)
	}
	d, err := c.open(e)
	if err != nil {
		return "", err
	}
	defer d.Close() // what was written is committed
	return d.NewToken(e.ctx, c.author(), c.Name, rulesdb.Role(c.Role), lasts)
}

type tokenRevokeCmd struct {
	editorFlags   `embed:""`
	tokenFileFlag `embed:""`
	authorFlag    `embed:""`
	Name          string `arg:"" help:"The name of their owner."`
}

// Run revokes tokens.
func (c *tokenRevokeCmd) Run(e *env) error {
	if c.File != "" {
		return c.revoke(c.Name)
	}
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // what was written is committed
	return d.RevokeToken(e.ctx, c.author(), c.Name)
}

type tokenListCmd struct {
	editorFlags   `embed:""`
	tokenFileFlag `embed:""`
	jsonFlag      `embed:""`
}

// Run lists tokens.
func (c *tokenListCmd) Run(e *env) error {
	tokens, err := c.tokens(e)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, append([]rulesdb.Token{}, tokens...))
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

func (c *tokenListCmd) tokens(e *env) ([]rulesdb.Token, error) {
	if c.File != "" {
		return c.list()
	}
	d, err := c.open(e)
	if err != nil {
		return nil, err
	}
	defer d.Close() // it has only read
	return d.Tokens(e.ctx)
}

type tokenUsageCmd struct {
	SecretFile string   `required:"" env:"STINT_SECRET_FILE" placeholder:"FILE" help:"The secret of the servers: --secret-file of stint serve and stint proxy."`
	Attribute  []string `required:"" sep:"none" placeholder:"NAME=VALUE" help:"Who the customer is, such as header.x-api-key=partner-1; may be repeated."`
	For        string   `default:"1d" placeholder:"DURATION" help:"How long it is valid, such as 12h or 30d (${default})."`
}

// Help is what "stint token usage --help" says below the summary.
func (tokenUsageCmd) Help() string {
	return `The token is signed, and kept nowhere: it cannot be revoked but by another secret.
Its holder can read the attributes in it. GET /v1/usage with it says what is used
and left under each rule that has a key of the customer.

For example:

    stint token usage --secret-file secret --for 12h \
        --attribute header.x-api-key=partner-1
    curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/usage`
}

// Run makes a token.
func (c *tokenUsageCmd) Run(e *env) error {
	lasts, err := rulesapi.ParseLasts(c.For)
	if err != nil || lasts == 0 {
		return usage("--for", "%q: how long the token is good, such as 12h or 30d", c.For)
	}
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return err
	}
	if len(secret) < 16 {
		return fmt.Errorf("--secret-file: a secret of %d bytes: at least 16, such as openssl rand -hex 32 makes", len(secret))
	}
	attrs, err := (&requestFlags{Attribute: c.Attribute}).attributes()
	if err != nil {
		return err
	}
	token, err := operate.UsageToken(secret, attrs, time.Now().Add(lasts))
	if err != nil {
		return usage("--attribute", "%w", err)
	}
	_, err = fmt.Fprintln(e.out, token)
	return err
}
