package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/service/rulesapi"
)

// serversFlags say which servers are asked.
type serversFlags struct {
	Server    []string `sep:"none" env:"STINT_SERVER" placeholder:"URL" help:"The admin address of a server, such as http://127.0.0.1:9090. May be repeated."`
	TokenFile string   `env:"STINT_SERVER_TOKEN_FILE" placeholder:"FILE" help:"A file with your token, if servers need one."`

	servers []*rulesapi.Client
}

// serversHelp is the part about these flags in the help of a command.
const serversHelp = `If you repeat --server, the servers answer together. One that does not answer within 5 s
is in the answer as unknown, and the status is 1.
`

// askWithin is how long each of several servers may take to answer, since the other answers
// wait for it. It is a variable, so that a test on a busy machine can wait longer.
var askWithin = 5 * time.Second

// open reads the flags. It does not connect.
func (c *serversFlags) open() error {
	if len(c.Server) == 0 {
		return usage("--server", "missing: write the admin address of the server, such as --server http://127.0.0.1:9090")
	}
	for _, one := range c.Server {
		k, err := rulesapi.Dial(one, c.TokenFile)
		if err != nil {
			return &usageError{"--server", err}
		}
		if slices.ContainsFunc(c.servers, func(o *rulesapi.Client) bool { return o.String() == k.String() }) {
			return usage("--server", "%s is there twice, and would count twice", k)
		}
		c.servers = append(c.servers, k)
	}
	return nil
}

// alone reports whether only one server is asked.
func (c *serversFlags) alone() bool { return len(c.servers) == 1 }

// close closes connections.
func (c *serversFlags) close() {
	for _, k := range c.servers {
		_ = k.Close() // it has only read
	}
}

// An answer is the answer of one server.
type answer[T any] struct {
	at   *rulesapi.Client
	said T
}

// An unknown is a server that did not answer, beside others that did.
type unknown struct {
	Server string `json:"server"`
	Error  string `json:"error"`
}

// text is a line for people.
func (u *unknown) text() string { return fmt.Sprintf("unknown at %s: %s\n", u.Server, inLine(u.Error)) }

// ask asks all servers at once. failed is nil if all answered; if none did, it has all errors.
func ask[T any](ctx context.Context, c *serversFlags, question func(context.Context, *rulesapi.Client) (T, error)) (all []answer[T], missing []unknown, failed error) {
	if !c.alone() {
		within, stop := context.WithTimeout(ctx, askWithin)
		defer stop()
		ctx = within
	}
	said, errs := make([]T, len(c.servers)), make([]error, len(c.servers))
	var wait sync.WaitGroup
	for i, k := range c.servers {
		wait.Go(func() { said[i], errs[i] = question(ctx, k) })
	}
	wait.Wait()
	for i, k := range c.servers {
		if errs[i] == nil {
			all = append(all, answer[T]{k, said[i]})
		} else {
			missing = append(missing, unknown{k.String(), strings.TrimPrefix(errs[i].Error(), k.String()+": ")})
		}
	}
	switch {
	case len(all) == 0:
		return nil, nil, errors.Join(errs...)
	case len(missing) > 0:
		failed = fmt.Errorf("%d of %s did not answer", len(missing), count(len(c.servers), "server"))
	}
	return all, missing, failed
}
