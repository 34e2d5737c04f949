package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/rulesapi"
)

// query returns the query that names a customer under a rule.
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

// act asks the server to act, and prints what it did.
func (c *addressFlags) act(e *env, path string, query url.Values, body any, asJSON bool) error {
	did, err := c.ask(e, path, query, body)
	if err != nil {
		return err
	}
	return printAct(e, did, asJSON)
}

// ask asks the server to act, and returns what it did.
func (c *addressFlags) ask(e *env, path string, query url.Values, body any) (did operate.Act, err error) {
	if c.Server == "" {
		return did, usage("--server", "missing: write the admin address of the server, such as --server http://127.0.0.1:9090")
	}
	k, err := rulesapi.Dial(c.Server, c.TokenFile)
	if err != nil {
		return did, &usageError{"--server", err}
	}
	defer k.Close() // it is done
	if err := k.Call(e.ctx, http.MethodPost, path, query, body, &did); err != nil {
		return did, editorError(err)
	}
	return did, nil
}

func printAct(e *env, did operate.Act, asJSON bool) error {
	if asJSON {
		return printJSON(e.out, did)
	}
	text := actText(did)
	if did.Undone > 0 {
		text = fmt.Sprintf("act %d is taken back: %s", did.Undone, text)
	}
	return wrap(e.out, text+"\n", "    ")
}

// actText says what was done, and to whom.
func actText(did operate.Act) string {
	if did.Rule == "" { // the act was on many keys
		return did.Did
	}
	return fmt.Sprintf("%s %s: %s", did.Rule, shown(did.Key), did.Did)
}

type resetCmd struct {
	addressFlags  `embed:""`
	customerFlags `embed:""`
	Rule          string   `arg:"" help:"The rule's name."`
	Args          []string `arg:"" optional:"" name:"key" help:"The customer's key."`
	Cost          *int64   `placeholder:"N" help:"Give back N units alone. The default is all that the customer has used."`
	reasonFlag    `embed:""`
	jsonFlag      `embed:""`
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
	Act         int64 `arg:"" optional:"" help:"The number of the act, as stint audit prints it. The default is your own last one, which is shown first."`
	jsonFlag    `embed:""`
}

// Help is what "stint audit undo --help" says below the summary.
func (undoCmd) Help() string {
	return `Takes back an override, a block, a load, a reset or a refund: what held before holds
again, for as long as it would have. An override that somebody has changed since stays.
What a reset or a refund gave is charged again, as far as it would count still: by a
server, so that these two need --server.

Without a number it is your own last act: it is shown, and on a terminal you are asked.
If that one was taken back, or was an undo, write the number.

For example:

    stint audit -n 5 --server http://127.0.0.1:9090
    stint audit undo 17 --server http://127.0.0.1:9090
    stint audit undo --rules sqlite:stint.db`
}

// Run takes an act back.
func (c *undoCmd) Run(e *env) error {
	if c.Act < 0 {
		return usage("act", "%d: the number of an act is at least 1", c.Act)
	}
	if c.Server != "" && c.Rules == "" {
		return c.undo(e, func(act int64, show bool) (operate.Act, error) {
			return c.ask(e, "/v1/undo", nil, map[string]any{"act": act, "show": show})
		})
	}
	if c.Rules == "" {
		return usage("--server", "missing: write the admin address of the server, such as --server http://127.0.0.1:9090, or --rules and a database of rules")
	}
	k, err := c.open(e)
	if err != nil {
		return err
	}
	defer k.Close() // what was written is committed
	return c.undo(e, func(act int64, show bool) (operate.Act, error) {
		did, err := operate.Undo(e.ctx, k, c.author(), act, show)
		return did, editorError(err)
	})
}

// undo takes back the act of c.Act. Without a number, it shows your last act first, and takes
// that back.
func (c *undoCmd) undo(e *env, do func(act int64, show bool) (operate.Act, error)) error {
	if c.Act == 0 {
		last, err := do(0, true)
		if err != nil {
			return err
		}
		c.Act = last.Undone
		if err := wrap(e.err, fmt.Sprintf("stint: your last act is %d: %s\n", c.Act, actText(last)), "    "); err != nil {
			return err
		}
		if isTerminal(e.in) && !agreed(e) {
			return fmt.Errorf("act %d stays", c.Act)
		}
	}
	did, err := do(c.Act, false)
	if err != nil {
		return err
	}
	return printAct(e, did, c.JSON)
}

// agreed asks the person at the terminal.
func agreed(e *env) bool {
	fmt.Fprint(e.err, "Take it back? [y/N] ")
	answer, _ := bufio.NewReader(e.in).ReadString('\n') // the end of the input means no
	return strings.EqualFold(strings.TrimSpace(answer), "y")
}
