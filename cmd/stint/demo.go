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

// demoFlags are the flags of stint serve that need no rules file.
type demoFlags struct {
	Demo       bool   `help:"Start with built-in rules and a small server behind the proxy, and print what to try. With --rules and a database without rules: put the rules there."`
	DemoListen string `default:"127.0.0.1:8000" placeholder:"ADDRESS" more:"" help:"With --demo, the address of the proxy (${default})."`
}

// fill puts the rules of the demo, and a customer's own limits, into a database
// that holds none.
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

// demoKeys is the most keys that a demo remembers.
const demoKeys = 1 << 14

// demoAdmin is where operators look at a demo, unless --admin says it.
const demoAdmin = "127.0.0.1:9090"

// demo runs a small server with a proxy in front of it, and the checks of the
// same rules and the operators' page at other addresses, until ctx is done. It
// prints what to try.
func (c *demoFlags) demo(ctx context.Context, e *env, checkAddress, adminAddress string) error {
	logger := (&sourceFlags{}).logger(e)
	f, err := rules.Decode("demo.yaml", demoRules)
	if err != nil {
		return err
	}
	flags := &sourceFlags{MaxKeys: demoKeys, warnFlags: warnFlags{WarnAt: 80}, storeFlags: storeFlags{StoreTimeout: mostTimeout},
		stateFlags: stateFlags{State: "none"}, operators: adminAddress}
	s, err := flags.openRules(f, logger)
	if err != nil {
		return err
	}
	defer s.close()
	var listeners [3]net.Listener // of the server behind, the proxy, the checks
	for i, one := range [3]struct{ flag, address string }{
		{"--demo", "127.0.0.1:0"}, {"--demo-listen", c.DemoListen}, {"--http", checkAddress},
	} {
		ln, err := listen(ctx, one.flag, one.address)
		if err != nil {
			return err
		}
		defer ln.Close() // who serves on it has closed it, unless it was never reached
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
		_ = server.Serve(beside, behind, proxy.Demo(), server.ServeOptions{Log: logger}) // the proxy is its only client
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
	if _, err = fmt.Fprint(e.out, guide(front.Addr(), own.Addr(), look.admin)); err != nil {
		return err
	}
	return proxy.Serve(ctx, front, h, proxy.ServeOptions{Drain: time.Second, OnStop: admin.Stop, Log: logger})
}

// guide is what a demo prints: lines that work when pasted into a shell.
func guide(front, own, admin net.Addr) string {
	yaml := strings.ReplaceAll("\n"+strings.TrimSpace(string(demoRules)), "\n", "\n  ")
	yaml = strings.ReplaceAll(yaml, "\n  \n", "\n\n")[1:]
	return fmt.Sprintf(`A small server, with stint in front of it and these rules:

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
`, yaml, reachable(front), reachable(own), reachable(admin))
}

// reachable returns how this machine reaches an address.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err == nil && (host == "::" || host == "0.0.0.0") {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr.String()
}
