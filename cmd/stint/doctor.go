package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
	"github.com/stint-dev/stint/service/statefile"
	"github.com/stint-dev/stint/service/storecheck"
)

type doctorCmd struct {
	serveCmd `embed:""`

	jsonFlag `embed:""`
}

// Help is what "stint doctor --help" says below the summary.
func (doctorCmd) Help() string {
	return `Takes the flags and the environment of stint serve, but serves nothing: it
reports what stint serve would find. The exit status is 1 if it would not start,
or if something is wrong.

For example:

    stint doctor stint.yaml --store redis://127.0.0.1:6379
    stint doctor stint.yaml --http :8443 --token-file tokens --json`
}

// A finding is one result of an examination.
type finding struct {
	About string `json:"about"`
	Level string `json:"level"` // ok, warning or error
	What  string `json:"what"`
	Hint  string `json:"hint,omitempty"`
}

// A diagnosis collects findings, in order.
type diagnosis struct {
	Found []finding `json:"found"`
}

func (u *diagnosis) ok(about, format string, args ...any) {
	u.Found = append(u.Found, finding{About: about, Level: "ok", What: fmt.Sprintf(format, args...)})
}

func (u *diagnosis) add(about, level, what, hint string) {
	u.Found = append(u.Found, finding{about, level, what, hint})
}

func (u *diagnosis) failed(about string, err error) {
	u.add(about, "error", strings.TrimPrefix(err.Error(), "stint: "), "")
}

// errFaults makes the exit status 1. Standard output says what is wrong.
var errFaults = errors.New("something is wrong")

// Run looks at everything, and prints one page.
func (c *doctorCmd) Run(e *env) error {
	var u diagnosis
	c.program(&u)
	examineClock(&u)
	store := c.examineRules(&u)
	c.examineStore(e.ctx, storeURL(store), &u)
	c.examineListeners(e.ctx, &u)
	c.examineState(&u)
	if err := printed(e.out, c.JSON, &u, u.text); err != nil {
		return err
	}
	for _, s := range u.Found {
		if s.Level == "error" {
			return errFaults
		}
	}
	return nil
}

// program reports the version, flags that are wrong, and how many connections the limit of
// descriptors leaves.
func (c *doctorCmd) program(u *diagnosis) {
	u.ok("version", "%s", version())
	if err := c.check(); err != nil {
		u.failed("flags", err)
	}
	for flag, texts := range map[string][]string{"--proxy-protocol": c.ProxyProtocol, "--trusted-proxy": c.TrustedProxy} {
		all, _ := proxies(flag, texts) // another finding reports an invalid address
		if why := anyone(flag, all); why != "" {
			u.add("proxies", "warning", why, "name the proxies alone")
		}
	}
	most, each := server.NewConns(server.ConnsOptions{Max: c.MaxConns, PerAddress: c.MaxConnsPerAddress, Log: slog.New(slog.DiscardHandler)}).Bounds()
	if most < 1000 {
		u.add("descriptors", "warning", fmt.Sprintf("room for %s of clients at once, %d of one address", count(most, "connection"), each), "raise the limit: ulimit -n, or LimitNOFILE= of the unit")
		return
	}
	u.ok("descriptors", "room for %s of clients at once, %d of one address", count(most, "connection"), each)
}

// examineRules reads the rules, and returns the store that --store or the rules name.
func (c *doctorCmd) examineRules(u *diagnosis) (store string) {
	path := cmp.Or(c.File, c.Config)
	switch {
	case c.Rules != "":
		u.add("rules", "warning", "they are in a database, which is not read here", "stint rules status and stint rules show look at it")
	case len(c.Limit) > 0:
		if _, err := proxy.OneRule("serve", c.Key, c.Limit); err != nil {
			u.failed("rules", err)
		} else {
			u.ok("rules", "one, named serve, by %s", c.Key)
		}
	case path == "":
		u.add("rules", "warning", "none are named", "stint doctor stint.yaml, or --limit '100/m'")
	default:
		store = c.examineFile(path, u)
	}
	if c.Store != "" {
		return c.Store
	}
	return store
}

func (c *doctorCmd) examineFile(path string, u *diagnosis) (store string) {
	r := inspect(path, nil)
	at := func(f rules.Finding) string {
		if f.Line == 0 {
			return path + ": " + f.Reason
		}
		return fmt.Sprintf("%s:%d: %s", path, f.Line, f.Reason)
	}
	for _, f := range r.Errors {
		u.add("rules", "error", at(f), f.Hint)
	}
	if !r.Valid {
		return ""
	}
	u.ok("rules", "%s in %s", count(r.Rules, "rule"), path)
	for _, f := range r.Warnings {
		u.add("rules", "warning", at(f), f.Hint)
	}
	f, err := rules.Read(path)
	if err != nil { // it has changed since
		return ""
	}
	if errs := f.Rules.File().Refused(request.Serve); len(errs) > 0 {
		for _, f := range rules.ReportOf(f, errs).Errors {
			u.add("rules", "error", at(f), f.Hint)
		}
	}
	return f.Settings.Store
}

// examineStore uses the store as stint serve would, on keys of its own that it removes.
func (c *doctorCmd) examineStore(ctx context.Context, store storeURL, u *diagnosis) {
	if store == "" {
		u.ok("store", "the memory of the process, at most %s for each limit", count(c.MaxKeys, "key"))
		return
	}
	o, err := store.options()
	if err != nil {
		u.failed("store", err)
		return
	}
	o.DialTimeout, o.ReadTimeout = 2*time.Second, 2*time.Second
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client, err := redisstore.Connect(ctx, o)
	if err != nil {
		u.add("store", "error", fmt.Sprintf("%v: %v", store, err), storecheck.HintFor(err))
		return
	}
	defer client.Close()
	r := storecheck.Run(ctx, client, storecheck.Options{Deadline: c.StoreTimeout, Replica: func(address string) redis.UniversalClient {
		one := *o // with one address and no Sentinel, it makes a client of one server
		one.Addrs, one.MasterName = []string{address}, ""
		return redis.NewUniversalClient(&one)
	}})
	for i := range r.Nodes {
		for _, text := range r.Nodes[i].Describe() {
			u.ok("store", "%s", text)
		}
	}
	if r.Decision.Median > 0 {
		u.ok("store", "a decision takes %v, at p99 %v; --store-timeout is %v", round(r.Decision.Median), round(r.Decision.P99), c.StoreTimeout)
	}
	if r.Clock.Within > 0 {
		way := "ahead of"
		if r.Clock.Ahead < 0 {
			way = "behind"
		}
		u.ok("store", "its clock is %v %s this machine's, to within %v", round(r.Clock.Ahead.Abs()), way, round(r.Clock.Within))
	}
	for _, f := range r.Problems {
		u.add("store", "error", f.What, f.Hint)
	}
	for _, f := range r.Warnings {
		u.add("store", "warning", f.What, f.Hint)
	}
}

// round rounds a duration to about three digits.
func round(d time.Duration) time.Duration {
	unit := time.Nanosecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}

// examineListeners opens each address for a moment, and reports who may use it.
func (c *doctorCmd) examineListeners(ctx context.Context, u *diagnosis) {
	quiet := slog.New(slog.DiscardHandler)
	d, err := c.access(quiet)
	if err != nil {
		u.failed("access", err)
		return
	}
	for _, one := range []struct{ flag, address string }{
		{"--http", c.HTTP}, {"--grpc", c.GRPC}, {"--resp", c.RESP}, {"--admin", c.Admin},
	} {
		if one.address == "" {
			u.ok("ports", "%s is off", one.flag)
			continue
		}
		addr, err := tryAddress(ctx, one.flag, one.address)
		if err != nil {
			u.add("ports", "error", err.Error(), "")
			continue
		}
		u.ok("ports", "%s: %s is free", one.flag, one.address)
		if one.flag != "--admin" {
			if _, err := d.exposed(one.flag, one.address, addr, quiet); err != nil {
				u.failed("exposed", err)
				continue
			}
		}
		level, text := d.audience(one.flag, addr, c.Rules != "")
		u.add("exposed", level, one.flag+" "+text, "")
	}
}

// examineState reports whether the state file can be written, if operators may act.
func (c *doctorCmd) examineState(u *diagnosis) {
	config := cmp.Or(c.File, c.Config)
	if c.Admin == "" || c.Rules != "" {
		return
	}
	path := c.path(config)
	if path == "" {
		u.ok("state", "what operators do is kept in memory")
		return
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		u.failed("state", err)
		return
	}
	if err := statefile.Unwritable(path); err != nil {
		u.add("state", "warning", "operators can change nothing: "+err.Error(), stateHint)
		return
	}
	u.ok("state", "what operators do is kept in %s", path)
}

// tryAddress opens an address and closes it.
func tryAddress(ctx context.Context, flag, address string) (net.Addr, error) {
	ln, err := listen(ctx, flag, address)
	if err != nil {
		return nil, err
	}
	defer ln.Close() // nothing was served
	return ln.Addr(), nil
}

// audience says who reaches an address, who of them may ask, and who may act.
func (d *access) audience(flag string, addr net.Addr, inDatabase bool) (level, text string) {
	level, reach := "ok", "reaches this machine alone"
	if !server.Local(addr) {
		reach = "reaches other machines"
	}
	if _, unix := addr.(*net.UnixAddr); unix {
		reach = "is a socket for its owner and group"
	}
	ask := "everyone there may ask"
	switch {
	case flag == "--admin" && server.Local(addr):
		ask = "everyone there may see metrics, the lab and how clients stand"
	case flag == "--admin" && d.clients == nil && d.operators == nil:
		level, ask = "warning", "everyone there may see metrics"
	case flag == "--admin":
		ask = "those with a token may see metrics"
	case d.clients != nil:
		ask = "those with a token may ask"
	case !server.Local(addr) && d.operators != nil:
		ask = "operators may ask"
	case !server.Local(addr):
		level = "warning"
	}
	cipher := "in clear"
	if d.certificate != nil && (flag != "--admin" || !server.Local(addr)) {
		cipher = "by TLS"
		if d.certificate.ForClients() && flag != "--admin" {
			cipher = "by TLS with certificates of clients"
		}
	} else if !server.Local(addr) {
		level = "warning"
	}
	return level, fmt.Sprintf("%s, %s; %s%s", reach, cipher, ask, d.acts(flag, addr, inDatabase))
}

// acts says who may change what keys have used, and at --admin also what they may use, as
// [access.guest] decides; "" for --grpc and --resp, where nobody may.
func (d *access) acts(flag string, addr net.Addr, inDatabase bool) string {
	const at = "may override, block, reset and undo"
	switch {
	case flag == "--http" && d.operators != nil:
		return "; operators may refund and reset"
	case flag == "--http":
		return "; nobody may refund or reset"
	case flag != "--admin":
		return ""
	case inDatabase:
		return "; tokens of the database, and those with a name, " + at + " by their roles"
	case d.operators != nil:
		return "; operators " + at
	case server.Local(addr):
		return "; everyone there " + at
	}
	return "; nobody may override, block, reset or undo"
}

func (u *diagnosis) text(w io.Writer) error {
	var b strings.Builder
	for _, s := range u.Found {
		text := s.What
		if s.Hint != "" {
			text += "; " + s.Hint
		}
		fmt.Fprintf(&b, "%-8s %-12s %s\n", s.Level, s.About, text)
	}
	return wrap(w, b.String(), strings.Repeat(" ", 22))
}
