package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

// demoRules are the rules of stint serve --demo.
//
//go:embed demo.yaml
var demoRules []byte

// budgetRules are the rules of stint serve --demo --demo-case budgets.
//
//go:embed demobudgets.yaml
var budgetRules []byte

// demoFlags are the flags of stint serve that need no rules file.
type demoFlags struct {
	Demo       bool   `help:"Start with built-in rules and a small server behind the proxy, and print what to try. With --rules and a database without rules: put the rules there."`
	DemoCase   string `default:"proxy" enum:"proxy,budgets" more:"" help:"What --demo shows: ${enum} for language models. The default is ${default}."`
	DemoListen string `default:"127.0.0.1:8000" placeholder:"ADDRESS" more:"" help:"With --demo, the address of the proxy (${default})."`
}

// fill puts the rules of the demo, and a customer's own limits, into a database
// without rules.
func (c *databaseFlags) fill(ctx context.Context, logger *slog.Logger) error {
	db, err := c.openRulesDB()
	if err != nil {
		return err
	}
	defer db.Close() // what was written is committed
	const author = "stint serve --demo"
	_, err = db.Publish(ctx, 0, rulesdb.Revision{Author: author, Comment: "the rules of the demo", Name: "demo.yaml", Document: demoRules})
	if errors.Is(err, rulesdb.ErrConflict) {
		logger.Info("--demo: the database holds rules already, which stay", "database", db.String())
		return nil
	}
	if err != nil {
		return err
	}
	o := rulesource.Override{Rule: "api", Key: "friend", Limits: []string{"50/m"}, Reason: "to look at: stint override list", Author: author}
	if _, _, err := db.SetOverride(ctx, o, 0); err != nil {
		return err
	}
	logger.Info("--demo: the database has rules now: stint rules log, stint override list", "database", db.String())
	return nil
}

// demoKeys is how many keys a demo remembers.
const demoKeys = 1 << 14

// demoAdmin is the address for operators of a demo without --admin.
const demoAdmin = "127.0.0.1:9090"

// demo runs, until ctx is done, a small server, a proxy in front of it, and at other
// addresses checks by the same rules and the operators' page. It prints what to try.
func (c *demoFlags) demo(ctx context.Context, e *env, checkAddress, adminAddress string) error {
	logger, text, upstream, guide := (&sourceFlags{}).logger(e), demoRules, proxy.Demo(), proxyGuide
	if c.DemoCase == "budgets" {
		text, upstream, guide = budgetRules, proxy.DemoModel(), budgetsGuide
	}
	f, err := rules.Decode("demo.yaml", text)
	if err != nil {
		return err
	}
	flags := &sourceFlags{MaxKeys: demoKeys, warnFlags: warnFlags{WarnAt: 80}, storeFlags: storeFlags{StoreTimeout: mostTimeout},
		stateFlags: stateFlags{State: "none"}, operators: adminAddress}
	flags.nameNode(checkAddress)
	s, err := flags.openRules(ctx, f, logger)
	if err != nil {
		return err
	}
	defer s.close()
	var listeners [3]net.Listener // of the upstream server, the proxy and the checks
	for i, one := range [3]struct{ flag, address string }{
		{"--demo", "127.0.0.1:0"}, {"--demo-listen", c.DemoListen}, {"--http", checkAddress},
	} {
		ln, err := listen(ctx, one.flag, one.address)
		if err != nil {
			return err
		}
		defer ln.Close() // a server has closed it, unless none was started
		listeners[i] = ln
	}
	behind, front, own := listeners[0], listeners[1], listeners[2]
	admin := &server.Admin{Source: s.source, Observer: s.observer}
	checks := server.NewHandler(server.Options{
		Source: s.source, Observer: s.observer, Admin: admin, Log: logger, Open: server.Local(own.Addr()),
	})
	h, err := proxy.NewHandler(proxy.Options{
		Upstream: &url.URL{Scheme: "http", Host: behind.Addr().String()},
		Source:   s.source, Observer: s.observer, Log: logger,
		MaxLag: -1, // whoever tries it waits for each answer
	})
	if err != nil {
		return err
	}
	defer h.Close()
	var all sync.WaitGroup
	defer all.Wait()
	beside, end := context.WithCancel(context.WithoutCancel(ctx)) // until the proxy has drained
	defer end()
	all.Go(func() {
		_ = server.Serve(beside, behind, upstream, server.ServeOptions{Log: logger}) // the proxy is its only client
	})
	all.Go(func() {
		if err := server.Serve(beside, own, server.Guard(checks, own.Addr(), nil), server.ServeOptions{Log: logger}); err != nil {
			logger.Error("--http", "error", err)
		}
	})
	look := new(access)
	if err := s.operators(beside, flags, look, admin, &all, logger); err != nil {
		return err
	}
	if _, err = fmt.Fprint(e.out, guided(guide, text, front.Addr(), own.Addr(), look.admin)); err != nil {
		return err
	}
	return proxy.Serve(ctx, front, h, proxy.ServeOptions{Drain: time.Second, OnStop: admin.Stop, Log: logger})
}

// guided returns what a demo prints: a guide with the rules, the addresses of the proxy,
// the checks and the operators' page, and lines that can be pasted into a shell.
func guided(guide string, rules []byte, front, own, admin net.Addr) string {
	yaml := strings.ReplaceAll("\n"+strings.TrimSpace(string(rules)), "\n", "\n  ")
	yaml = strings.ReplaceAll(yaml, "\n  \n", "\n\n")[1:]
	return fmt.Sprintf(guide, yaml, reachable(front), reachable(own), reachable(admin))
}

const proxyGuide = `A small server, with stint in front of it and these rules:

%[1]s

  http://%[2]s   the server, through stint
  http://%[3]s   the same rules, for programs that ask
  http://%[4]s/ui/   the operators' page: who is denied, and why

Try, in another terminal:

  # guessing a password: the first goes through, the next in 2 s
  curl -s -o /dev/null -w '%%{http_code}\n' -d user=anna \
    'http://%[2]s/login?[1-4]'

  # what a denied client sees: 429, and when to come back
  curl -s -i -d user=anna 'http://%[2]s/login?[1-2]'

  # an API key: five a minute
  curl -s -o /dev/null -w '%%{http_code}\n' -H 'X-Api-Key: anna' \
    'http://%[2]s/api/items?[1-7]'

  # a partner's key: a hundred; and every answer says what is left
  curl -s -i -H 'X-Api-Key: partner-1' http://%[2]s/api/items

  # four reports at once: they start a second apart
  curl -Z --no-progress-meter 'http://%[2]s/report?[1-4]'

  # a program of yours asks, and is told what happens at the proxy
  curl -s http://%[3]s/v1/check \
    --json '{"attributes":{"method":"POST","path":"/login","ip":"192.0.2.7"}}'

Ctrl-C stops it. For a server of yours, with rules of yours:
  stint proxy -c stint.yaml --upstream http://127.0.0.1:9000
`

const budgetsGuide = `A small server that answers as a language model does, with stint in front of it
and these rules:

%[1]s

  http://%[2]s   the server, through stint
  http://%[4]s/ui/   the operators' page: who used what, who is denied

Try, in another terminal:

  # team red asks: what it may use at most is reserved, what it used is charged
  curl -s -i -H 'X-Team: red' http://%[2]s/v1/chat/completions \
    --json '{"model":"small","max_tokens":100,"messages":[]}'

  # a stream: stint asks the server for its usage, and takes that out again
  curl -sN -H 'X-Team: red' http://%[2]s/v1/chat/completions \
    --json '{"model":"small","stream":true,"messages":[]}'

  # the large model costs ten times as much: the second has to wait
  curl -s -o /dev/null -w '%%{http_code}\n' -H 'X-Team: blue' \
    'http://%[2]s/v1/chat/completions?[1-2]' \
    --json '{"model":"large","max_tokens":60,"messages":[]}'

  # a model without a price is refused, and so are other paths
  curl -s -H 'X-Team: blue' http://%[2]s/v1/chat/completions \
    --json '{"model":"huge","messages":[]}'

Ctrl-C stops it. For a server of yours, with rules of yours:
  stint proxy -c stint.yaml --upstream http://127.0.0.1:9000
`

// reachable returns how this machine reaches an address.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err == nil && (host == "::" || host == "0.0.0.0") {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr.String()
}
