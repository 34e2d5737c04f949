package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/rulesapi"
)

// query names a customer under a rule.
func (c *customerFlags) query(rule string, args []string) (url.Values, error) {
	who, err := c.only(args)
	if err != nil {
		return nil, err
	}
	query := url.Values{"rule": {rule}, "attribute": who.Attributes}
	if who.Key != "" || len(who.Attributes) == 0 {
		query.Set("key", who.Key)
	}
	return query, nil
}

// serverFlags name the server that acts.
type serverFlags struct {
	Server    string `env:"STINT_SERVER" placeholder:"URL" help:"The admin address of the server, such as http://127.0.0.1:9090."`
	TokenFile string `env:"STINT_SERVER_TOKEN_FILE" placeholder:"FILE" help:"A file with your token, if the server needs one."`
}

// act asks the server to do something, and says what it did.
func (c *serverFlags) act(e *env, path string, query url.Values, body any, asJSON bool) error {
	if c.Server == "" {
		return usage("--server", "missing: write the admin address of the server, such as --server http://127.0.0.1:9090")
	}
	k, err := rulesapi.Dial(c.Server, c.TokenFile)
	if err != nil {
		return &usageError{"--server", err}
	}
	defer k.Close() // it is done
	var did operate.Act
	if err := k.Call(e.ctx, http.MethodPost, path, query, body, &did); err != nil {
		return editorError(err)
	}
	return printAct(e, did, asJSON)
}

func printAct(e *env, did operate.Act, asJSON bool) error {
	if asJSON {
		return printJSON(e.out, did)
	}
	text := fmt.Sprintf("%s %s: %s\n", did.Rule, shown(did.Key), did.Did)
	if did.Undone > 0 {
		text = fmt.Sprintf("act %d is taken back: %s", did.Undone, text)
	}
	return wrap(e.out, text, "    ")
}

type resetCmd struct {
	serverFlags   `embed:""`
	customerFlags `embed:""`
	Rule          string   `arg:"" help:"The rule's name."`
	Args          []string `arg:"" optional:"" name:"key" help:"The customer's key."`
	Cost          *int64   `placeholder:"N" help:"Give back N units alone. The default is all that the customer has used."`
	Reason        string   `placeholder:"TEXT" help:"Why, for the audit."`
	JSON          bool     `name:"json" help:"Write JSON."`
}

// Help is what "stint reset --help" says below the summary.
func (resetCmd) Help() string {
	return `Forgets what a customer has used under a rule, or gives units back under all its
limits, as far as they still count. A block, or an override, stays.

For example:

    stint reset login 192.0.2.7 --server http://127.0.0.1:9090
    stint reset api --attribute header.x-api-key=partner-1 --reason 'our fault'
    stint reset tokens anna --cost 50000 --server http://127.0.0.1:9090`
}

// Run resets or refunds.
func (c *resetCmd) Run(e *env) error {
	query, err := c.query(c.Rule, c.Args)
	switch {
	case err != nil:
		return err
	case c.Cost != nil && *c.Cost < 1:
		return usage("--cost", "%d: at least 1", *c.Cost)
	case c.Cost != nil:
		return c.act(e, "/v1/refund", query, map[string]any{"cost": *c.Cost, "reason": c.Reason}, c.JSON)
	}
	return c.act(e, "/v1/reset", query, map[string]any{"reason": c.Reason}, c.JSON)
}

type undoCmd struct {
	editorFlags `embed:""`
	authorFlag  `embed:""`
	Act         int64 `arg:"" optional:"" help:"The number of the act, as stint audit prints it. The default is the last one that was not undone."`
	JSON        bool  `name:"json" help:"Write JSON."`
}

// Help is what "stint audit undo --help" says below the summary.
func (undoCmd) Help() string {
	return `Takes back an override, a block, a reset or a refund: what held before holds again,
for as long as it would have. An override that somebody has changed since stays.
What a reset or a refund gave is charged again, as far as it would count still: by a
server, so that these two need --server.

For example:

    stint audit undo --server http://127.0.0.1:9090
    stint audit undo --rules sqlite:stint.db
    stint audit -n 5
    stint audit undo 17`
}

// Run takes an act back.
func (c *undoCmd) Run(e *env) error {
	if c.Act < 0 {
		return usage("act", "%d: the number of an act is at least 1", c.Act)
	}
	if c.Server != "" && c.Rules == "" {
		server := &serverFlags{c.Server, c.TokenFile}
		return server.act(e, "/v1/undo", nil, map[string]any{"act": c.Act}, c.JSON)
	}
	if c.Rules == "" {
		return usage("--server", "missing: write the admin address of the server, such as --server http://127.0.0.1:9090, or --rules and a database of rules")
	}
	k, err := c.open(e)
	if err != nil {
		return err
	}
	defer k.Close() // what was written is committed
	did, err := operate.Undo(e.ctx, k, c.author(), c.Act)
	if err != nil {
		return editorError(err)
	}
	return printAct(e, did, c.JSON)
}
