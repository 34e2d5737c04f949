package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/service/atomicfile"
	"github.com/stint-dev/stint/service/rules"
)

// storeFlags say where usage is kept.
type storeFlags struct {
	Store        string        `env:"STINT_STORE" placeholder:"URL" help:"The Redis or Valkey that keeps usage: redis://host:6379; overrides store of the file. Put a URL with a password into $STINT_STORE, where other users cannot see it. The default is the memory of this process."`
	Nodes        int           `env:"STINT_NODES" placeholder:"N" more:"" help:"How many processes share the store. While the store fails, each allows its share of every limit. Without it, they count each other by a heartbeat through the store."`
	NewKeys      int           `env:"STINT_NEW_KEYS" placeholder:"N" default:"0" more:"" help:"How many new keys a second this process may create in the store. Beyond that, new keys share overflow keys, so that a flood of them does not fill the store. 0 depends on the free memory of the store, -1 is no bound."`
	StorePrefix  string        `env:"STINT_STORE_PREFIX" placeholder:"NAME" default:"stint" more:"" help:"The prefix of keys in the store (${default}): the same for all processes that share limits, and another for each fleet that does not."`
	StoreTimeout time.Duration `env:"STINT_STORE_TIMEOUT" default:"15ms" more:"" help:"How long a call to the store may take (${default}). A request without an answer by then is decided without the store."`
	SecretFile   string        `env:"STINT_SECRET_FILE" placeholder:"FILE" help:"A file with a secret of 16 bytes or more, the same for all processes that share the store. It seals reservations and hashes keys. Without it, reservations and the key_hash of logs mean nothing to other processes, or after a restart."`
}

const storeExample = "write redis://host:6379, with user:password@ and /db as needed, rediss:// for TLS, or unix:///run/redis.sock"

// A storeURL is the URL of a Redis, which may hold a password.
type storeURL string

// String returns the URL without user, password and parameters, which must not be shown.
func (u storeURL) String() string {
	parsed, err := url.Parse(string(u))
	if err != nil || strings.ContainsRune(parsed.Path+parsed.Fragment, '@') || parsed.User == nil && strings.ContainsRune(parsed.RawQuery, '@') {
		// Malformed: a #, ? or / in the password has ended the host.
		return "this"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// options reads the URL.
func (u storeURL) options() (*redis.UniversalOptions, error) {
	parsed, err := url.Parse(string(u))
	if err != nil { // the error would show the URL
		return nil, fmt.Errorf("this is no URL: %s", storeExample)
	}
	switch {
	case u.String() == "this", !slices.Contains([]string{"redis", "rediss", "unix"}, parsed.Scheme), parsed.Host == "" && parsed.Scheme != "unix", parsed.Path == "" && parsed.Scheme == "unix":
		return nil, fmt.Errorf("%v is no Redis: %s", u, storeExample)
	}
	return redisstore.ParseURL(string(u))
}

// mostTimeout is the greatest --store-timeout: an answer may take 10 s in all.
const mostTimeout = 5 * time.Second

// check returns an error for a value that is out of range, or a URL of no store.
func (c *storeFlags) check() error {
	if c.Nodes < 0 {
		return usage("--nodes", "%d: at least 1", c.Nodes)
	}
	if c.NewKeys < -1 {
		return usage("--new-keys", "%d: at least 1, 0 to go by the memory that the store has left, or -1 for no bound", c.NewKeys)
	}
	if strings.ContainsAny(c.StorePrefix, "{}") {
		return usage("--store-prefix", "%q: no braces, which mark the slot of a cluster", c.StorePrefix)
	}
	if c.StoreTimeout <= 0 || c.StoreTimeout > mostTimeout {
		return usage("--store-timeout", "%v: longer than 0s, and %v at most", c.StoreTimeout, mostTimeout)
	}
	if c.Store == "" {
		return nil
	}
	if _, err := storeURL(c.Store).options(); err != nil {
		return &usageError{"--store", err}
	}
	return nil
}

// url returns the URL that the flag, the environment, or else the rules file names; "" for
// none.
func (c *storeFlags) url(f *rules.File) storeURL { return storeURL(cmp.Or(c.Store, f.Settings.Store)) }

// checkStore refuses a URL in a rules file that names no Redis.
func checkStore(f *rules.File) error {
	if f.Settings.Store == "" {
		return nil
	}
	if _, err := storeURL(f.Settings.Store).options(); err != nil {
		return rulesfile.Errors{{Line: f.Settings.StoreLine, Column: f.Settings.StoreColumn, Path: "store", Reason: err.Error()}}
	}
	return nil
}

// withoutStore refuses flags on the line that do nothing without a store, and warns of those of the
// environment. It warns too if the rules are in a database: they may name a store another time.
func (c *sourceFlags) withoutStore(logger *slog.Logger) error {
	if c.from == nil { // stint serve --demo
		return nil
	}
	const why = "has no effect without a store that processes share: --store names it"
	for _, name := range []string{"nodes", "new-keys", "store-prefix", "store-timeout"} {
		switch from := c.from(name); {
		case from == "--"+name && c.Rules == "":
			return usage(from, why)
		case from != "":
			logger.Warn(from + " " + why)
		}
	}
	return nil
}

// open returns the store in Redis that is named, or the local store.
func (c *storeFlags) open(f *rules.File, local *memstore.Store) (stint.Store, error) {
	u := c.url(f)
	if u == "" {
		return local, nil
	}
	if c.Store == "" { // the flag has been checked
		if err := checkStore(f); err != nil {
			return nil, err
		}
	}
	host, _ := os.Hostname() // only people read it
	store, err := redisstore.New(redisstore.Options{
		URL:     string(u),
		Prefix:  c.StorePrefix,
		Tag:     policy.Tag,
		Timeout: c.StoreTimeout,
		NewKeys: c.NewKeys,
		Modes:   redisstore.Modes{Nodes: c.Nodes, NodeID: host},
	})
	if err != nil {
		return nil, fmt.Errorf("store: %v: %w", u, err)
	}
	return &sharedStore{Store: store, configuredNodes: c.Nodes}, nil
}

// A sharedStore is a store in Redis, which holds the limits of each rule in the rule's mode.
type sharedStore struct {
	*redisstore.Store
	configuredNodes int         // how many processes share it; 0 if they count each other
	assumedNodes    int         // the last count of an earlier run, 0 if there is none
	nodesUnknown    *time.Timer // warns when no process was counted in time; nil if it need not
	evictionCheck   evictionCheck
}

var (
	_ policy.ModeStore = (*sharedStore)(nil)
	_ policy.Checker   = (*sharedStore)(nil)
	_ fallback.Charger = (*sharedStore)(nil)
)

// Check implements [policy.Checker].
func (m *sharedStore) Check(mode string, limits ...stint.Limit) error {
	if mode == redisstore.Share.String() && m.configuredNodes == 0 {
		return errors.New("mode share: each process holds its part: --nodes says how many there are")
	}
	return m.Store.Check(mode, limits...)
}

// countWithin is how long the first count of processes may take before a warning: a few
// heartbeats.
const countWithin = 3 * time.Second

// count joins the count of the processes that share the store. Unless a flag gives their
// number, count calls use with each number. It keeps the last number in file, unless that
// is "", and assumes it after a restart until the processes are counted again.
func (m *sharedStore) count(use func(int) error, file string, logger *slog.Logger) {
	if m.configuredNodes > 0 {
		m.CountNodes(nil) // other processes may count this one
		return
	}
	set := func(n int) {
		if err := use(n); err != nil {
			logger.Warn("the share of a limit that this process holds while the store fails could not be changed", "error", err)
		}
	}
	if m.assumedNodes = lastNodes(file); m.assumedNodes > 0 {
		set(m.assumedNodes)
	}
	m.nodesUnknown = time.AfterFunc(countWithin, func() {
		switch {
		case m.Nodes() > 0:
		case m.assumedNodes > 0:
			logger.Warn("how many processes share the store is not known: until the store has answered once, as many are assumed as when it last did; --nodes says how many", "nodes", m.assumedNodes)
		default:
			logger.Warn("how many processes share the store is not known: while it fails, each holds the whole of every limit until the store has answered once; --nodes says how many")
		}
	})
	m.CountNodes(func(n int) {
		logger.Info("counted the processes that share the store", "nodes", n)
		set(n)
		if file == "" {
			return
		}
		if err := atomicfile.Write(file, func(w io.Writer) error { _, err := fmt.Fprintln(w, n); return err }); err != nil {
			logger.Info("how many processes share the store is not kept for the next start", "error", err)
		}
	})
}

// compareRules warns if other processes under the same prefix have different rules for
// minutes.
func (m *sharedStore) compareRules(rules func() *policy.Rules, prefix string, logger *slog.Logger) {
	m.CompareRules(func() string { return rules().Digest() }, func(differ bool) {
		if differ {
			logger.Warn("other processes share this store and prefix, and have had other rules for minutes: their limits of the same name, and the number of processes, are counted together; if they are another application, give it a prefix of its own (--store-prefix)", "prefix", prefix)
			return
		}
		logger.Info("all processes under the prefix have the same rules", "prefix", prefix)
	})
}

// lastNodes reads the last count of processes from a file; 0 if there is none.
func lastNodes(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 1 || n > mostRemembered {
		return 0
	}
	return n
}

// mostRemembered is the greatest count that is read from a file.
const mostRemembered = 1 << 20

// nodes returns how many processes share the store, 0 if that is not known.
func (m *sharedStore) nodes() int { return cmp.Or(m.configuredNodes, m.Nodes(), m.assumedNodes) }

// knowsNodes reports whether nodes is known, and not assumed from an earlier run.
func (m *sharedStore) knowsNodes() bool { return m.configuredNodes > 0 || m.Nodes() > 0 }

// Close implements [stint.Store]. What keys have used stays in Redis.
func (m *sharedStore) Close() error {
	if m.nodesUnknown != nil {
		m.nodesUnknown.Stop()
	}
	m.evictionCheck.end()
	return m.Store.Close()
}

// options returns the options of a policy: the secret, and the store to fall back to.
func (c *storeFlags) options(local *memstore.Store, store stint.Store) (o policy.Options, err error) {
	if o.Secret, err = readSecret(c.SecretFile); err != nil {
		return o, err
	}
	if c.SecretFile != "" && len(o.Secret) < 16 {
		return o, fmt.Errorf("--secret-file: %s: a secret of %d bytes: at least 16, such as openssl rand -hex 32 makes", c.SecretFile, len(o.Secret))
	}
	if store != stint.Store(local) {
		o.Local, o.Nodes = local, c.Nodes
	}
	return o, nil
}

// readSecret reads --secret-file.
func readSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %w", err)
	}
	return []byte(strings.TrimSpace(string(text))), nil
}
