package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/rulesapi"
)

// serversFlags say which servers are asked: those that are named, or the nodes of a
// database of rules.
//
// Every node may write any address into the database, so a token goes only to addresses
// that the person allows.
type serversFlags struct {
	Server            []string `sep:"none" env:"STINT_SERVER" instead:"backend" placeholder:"URL" help:"The admin address of a server, such as http://127.0.0.1:9090. May be repeated."`
	TokenFile         string   `env:"STINT_SERVER_TOKEN_FILE" placeholder:"FILE" help:"A file with your token, if servers need one."`
	Rules             string   `env:"STINT_RULES" instead:"backend" placeholder:"URL" help:"Instead of --server: a database of rules, whose nodes are asked."`
	RulesPasswordFile string   `env:"STINT_RULES_PASSWORD_FILE" placeholder:"FILE" help:"A file with the database's password."`
	NodesAt           []string `env:"STINT_NODES_AT" placeholder:"HOST" help:"Ask the nodes of the database whose addresses are these, and show them your token: HOST, HOST:PORT, *.DOMAIN or a network such as 10.0.0.0/24. May be repeated. With --server, that server says which nodes there are."`

	known map[string]*rulesapi.Client // by address
}

// nodesHelp is what the help of a command that has them says.
const nodesHelp = `With --rules, or --server and --nodes-at, all nodes of a database answer together. A node
that does not answer within 5 s, or may not be asked, is named, and the status is 1.
`

// A node is a server to ask, or why it is not asked. Its name is that in the database,
// "" for one that was named by its address.
type node struct {
	name string
	at   *rulesapi.Client
	why  error
}

// String names it for people.
func (n *node) String() string {
	if n.name == "" {
		return n.at.String()
	}
	return shown(n.name)
}

// askWithin is how long one of several nodes may take to answer: the answers of the others
// wait for it. It is not constant, so that a test can wait for a machine that is busy.
var askWithin = 5 * time.Second

// seenWithin is how lately a node has written into the database; who has not is gone.
const seenWithin = 10 * time.Minute

// named reports whether the servers to ask are those of the line, and not the nodes of a
// database.
func (c *serversFlags) named() bool { return c.Rules == "" && len(c.NodesAt) == 0 }

// alone reports whether one server is asked, and answers for itself.
func (c *serversFlags) alone() bool { return c.named() && len(c.Server) == 1 }

// nodes returns the servers to ask.
func (c *serversFlags) nodes(ctx context.Context) (all []node, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.named() {
		for _, one := range c.Server {
			k, err := c.dial(one)
			if err != nil {
				return nil, &usageError{"--server", err}
			}
			all = append(all, node{at: k})
		}
		return all, nil
	}
	rows, err := c.rows(ctx)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no node has written into the database in the last %v", seenWithin)
	}
	asked := make(map[string]string)
	for _, row := range rows {
		n := node{name: row.Name}
		if n.at, n.why = c.of(row.Address); n.why == nil {
			if first, twice := asked[n.at.String()]; twice {
				n.why = fmt.Errorf("%s is the address of node %s", n.at, shown(first))
			} else {
				asked[n.at.String()] = row.Name
			}
		}
		all = append(all, n)
	}
	return all, nil
}

// check refuses flags that make no sense.
func (c *serversFlags) check() error {
	switch {
	case len(c.Server) == 0 && c.Rules == "":
		return usage("--server", "missing: write the admin address of the server, such as --server http://127.0.0.1:9090, or --rules and a database of rules, whose nodes are asked")
	case len(c.Server) > 0 && c.Rules != "":
		return usage("--server", "goes in place of --rules: give one of both, on the line if both $STINT_SERVER and $STINT_RULES are set")
	}
	for _, one := range c.NodesAt {
		if _, err := netip.ParsePrefix(one); err != nil && strings.ContainsAny(one, "/@?#") || one == "*" {
			return usage("--nodes-at", "%q: want HOST, HOST:PORT, *.DOMAIN or a network such as 10.0.0.0/24", one)
		}
	}
	return nil
}

// rows returns the nodes of the database.
func (c *serversFlags) rows(ctx context.Context) ([]rulesdb.Node, error) {
	if c.Rules == "" {
		return c.rowsOf(ctx)
	}
	db, err := (&backendFlags{Rules: c.Rules, RulesPasswordFile: c.RulesPasswordFile}).database()
	if err != nil {
		return nil, err
	}
	defer db.Close() // it has only read
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	return db.Nodes(ctx, seenWithin)
}

// rowsOf returns the nodes that a server knows: of several, the first that answers.
func (c *serversFlags) rowsOf(ctx context.Context) (rows []rulesdb.Node, failed error) {
	for _, one := range c.Server {
		k, err := c.dial(one)
		if err != nil {
			return nil, &usageError{"--server", err}
		}
		within, stop := context.WithTimeout(ctx, askWithin)
		var p operate.Page
		err = k.Call(within, http.MethodGet, "/v1/top", url.Values{"n": {"1"}}, nil, &p)
		stop()
		if err == nil && p.NodesError != "" {
			err = fmt.Errorf("%s: %s", k, p.NodesError)
		}
		if failed = errors.Join(failed, err); err != nil {
			continue
		}
		for _, n := range p.Nodes {
			rows = append(rows, rulesdb.Node{Name: n.Node, Address: n.Address})
		}
		return rows, nil
	}
	return nil, failed
}

// of returns what asks the node that has written an address, or why it is not asked.
func (c *serversFlags) of(address string) (*rulesapi.Client, error) {
	if address == "" {
		return nil, errors.New("it tells no address: --advertise says where others reach its --admin")
	}
	u, err := rulesapi.Address(address)
	if err != nil || strings.Trim(u.Path, "/") != "" || u.Fragment != "" || shown(u.Host) != u.Host { // which errors have
		return nil, fmt.Errorf("%s is no address", shown(address))
	}
	if !c.allows(u) {
		return nil, fmt.Errorf("%s is none that you allow: --nodes-at %s does, and your token goes there", u, u.Host)
	}
	return c.dial(u.Scheme + "://" + u.Host)
}

// allows reports whether the person allows that a node at an address is asked. Without
// a token, one of this machine may be.
func (c *serversFlags) allows(u *url.URL) bool {
	if c.TokenFile == "" && rulesapi.Loopback(u) {
		return true
	}
	for _, one := range c.NodesAt {
		if covers(strings.ToLower(one), u) {
			return true
		}
	}
	return false
}

// covers reports whether an address is of a host, of one at a port, of a domain, or in
// a network. No name is looked up.
func covers(what string, u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	if network, err := netip.ParsePrefix(what); err == nil {
		addr, err := netip.ParseAddr(host)
		return err == nil && network.Contains(addr.Unmap())
	}
	if domain, any := strings.CutPrefix(what, "*"); any {
		return strings.HasPrefix(domain, ".") && strings.HasSuffix(host, domain)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return what == host || what == "["+host+"]" || what == net.JoinHostPort(host, port)
}

// dial returns what asks a server; the same each time.
func (c *serversFlags) dial(address string) (*rulesapi.Client, error) {
	if k := c.known[address]; k != nil {
		return k, nil
	}
	k, err := rulesapi.Dial(address, c.TokenFile)
	if err == nil {
		if c.known == nil {
			c.known = make(map[string]*rulesapi.Client)
		}
		c.known[address] = k
	}
	return k, err
}

// close closes connections.
func (c *serversFlags) close() {
	for _, k := range c.known {
		_ = k.Close() // it has only read
	}
}

// An answer is what a node said.
type answer[T any] struct {
	node
	said T
}

// ask asks all nodes at once. The error is of those that did not answer: each is named.
func ask[T any](ctx context.Context, nodes []node, question func(context.Context, *rulesapi.Client) (T, error)) (all []answer[T], missing error) {
	if len(nodes) > 1 {
		within, stop := context.WithTimeout(ctx, askWithin)
		defer stop()
		ctx = within
	}
	said, failed := make([]T, len(nodes)), make([]error, len(nodes))
	var wait sync.WaitGroup
	for i, n := range nodes {
		if n.why != nil {
			failed[i] = fmt.Errorf("not asked: %w", n.why)
			continue
		}
		wait.Go(func() { said[i], failed[i] = question(ctx, n.at) })
	}
	wait.Wait()
	for i, n := range nodes {
		switch {
		case failed[i] == nil:
			all = append(all, answer[T]{n, said[i]})
		case n.name != "":
			failed[i] = fmt.Errorf("node %s is missing: %w", &n, failed[i])
		}
	}
	return all, errors.Join(failed...)
}
