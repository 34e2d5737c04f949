package main

import (
	"fmt"

	"github.com/stint-dev/stint/planner/lab"
)

type labCmd struct {
	Listen string `default:"127.0.0.1:8090" placeholder:"ADDRESS" help:"The address for browsers (${default}): a loopback address."`
}

// Help is what "stint lab --help" says below the summary.
func (labCmd) Help() string {
	return `Serves a web page to try limits: choose algorithms, change count, burst and
period, choose or draw requests, and see what passes, what is denied, and why.
Drop an access log on it to see what the limits would have done, and which limit
to choose. The binary contains everything the page needs, and nothing leaves this
machine.

For example:

    stint lab
    stint lab --listen 127.0.0.1:0`
}

// Run serves until SIGTERM or SIGINT.
func (c *labCmd) Run(e *env) error {
	if !lab.Loopback(c.Listen) {
		return usage("--listen", "%s: the lab has no password, so it listens on loopback only, such as 127.0.0.1:8090; from another machine: ssh -L 8090:127.0.0.1:8090", c.Listen)
	}
	options := lab.Options{Plan: lab.NewPlanner(lab.PlannerOptions{})}
	ctx, stop := e.untilSignal()
	defer stop()
	ln, err := listen(ctx, "--listen", c.Listen)
	if err != nil {
		return err
	}
	defer ln.Close() // Serve has closed it, unless an error came first
	if _, err := fmt.Fprintf(e.out, "The lab is at http://%s/ (Ctrl-C stops it).\n", ln.Addr()); err != nil {
		return err
	}
	return lab.Serve(ctx, ln, options)
}
