package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// ratelimitCmd is stint serve with the environment variables of envoyproxy/ratelimit. It
// takes the place of /bin/ratelimit, which control planes such as Envoy Gateway start with
// these variables alone.
type ratelimitCmd struct {
	Host       string `env:"HOST" default:"0.0.0.0" help:"The host of health checks."`
	Port       int    `env:"PORT" default:"8080" help:"Their port."`
	GRPCHost   string `name:"grpc-host" env:"GRPC_HOST" default:"0.0.0.0" help:"The host of the service."`
	GRPCPort   int    `name:"grpc-port" env:"GRPC_PORT" default:"8081" help:"Its port."`
	GRPCSocket string `name:"grpc-uds" env:"GRPC_UDS" help:"A Unix socket in place of host and port."`
	TLS        bool   `name:"grpc-tls" type:"gobool" env:"GRPC_SERVER_USE_TLS" help:"Serve TLS."`
	TLSCert    string `name:"grpc-tls-cert" env:"GRPC_SERVER_TLS_CERT" help:"The certificate."`
	TLSKey     string `name:"grpc-tls-key" env:"GRPC_SERVER_TLS_KEY" help:"Its key."`
	ClientCA   string `name:"grpc-client-ca" env:"GRPC_CLIENT_TLS_CACERT,GRPC_SERVER_TLS_CA_CERT" help:"The CAs of clients."`

	LogFormat      string `name:"log-format" env:"LOG_FORMAT" default:"text" help:"text or json."`
	Prometheus     bool   `name:"prometheus" type:"gobool" env:"USE_PROMETHEUS" help:"Serve metrics."`
	PrometheusAddr string `name:"prometheus-addr" env:"PROMETHEUS_ADDR" default:":9090" help:"Where."`
	Tracing        bool   `name:"tracing" type:"gobool" env:"TRACING_ENABLED" help:"Send spans."`
	TracingURL     string `name:"tracing-url" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"Where."`
	Fields         bool   `name:"fields" type:"gobool" env:"LIMIT_RESPONSE_HEADERS_ENABLED" help:"Send RateLimit fields."`

	Config configEnv `embed:"" prefix:"config-"`
	Redis  redisEnv  `embed:"" prefix:"redis-"`
}

// configEnv says where the configuration is.
type configEnv struct {
	Type       string `name:"type" env:"CONFIG_TYPE" default:"FILE" help:"GRPC_XDS_SOTW."`
	StartEmpty bool   `name:"start-empty" type:"gobool" env:"FORCE_START_WITHOUT_INITIAL_CONFIG" help:"Do not wait for the first configuration."`
	Merge      bool   `name:"merge" type:"gobool" env:"MERGE_DOMAIN_CONFIG" help:"Take resources of one domain together."`
	Node       string `name:"node" env:"CONFIG_GRPC_XDS_NODE_ID" default:"default" help:"The node of xDS."`
	Metadata   string `name:"metadata" env:"CONFIG_GRPC_XDS_NODE_METADATA" help:"KEY=VALUE of the node, separated by commas."`
	Server     string `name:"server" env:"CONFIG_GRPC_XDS_SERVER_URL" default:"localhost:18000" help:"The control plane."`
	TLS        bool   `name:"tls" type:"gobool" env:"CONFIG_GRPC_XDS_SERVER_USE_TLS" help:"Ask it over TLS."`
	Cert       string `name:"cert" env:"CONFIG_GRPC_XDS_CLIENT_TLS_CERT" help:"The certificate shown to it."`
	Key        string `name:"key" env:"CONFIG_GRPC_XDS_CLIENT_TLS_KEY" help:"Its key."`
	CACert     string `name:"cacert" env:"CONFIG_GRPC_XDS_SERVER_TLS_CACERT" help:"The CAs of the control plane."`
	SAN        string `name:"san" env:"CONFIG_GRPC_XDS_SERVER_TLS_SAN" help:"The name in its certificate."`
}

// redisEnv says which Redis keeps usage.
type redisEnv struct {
	Backend      string `name:"backend" env:"BACKEND_TYPE" default:"redis" help:"redis."`
	Socket       string `name:"socket-type" env:"REDIS_SOCKET_TYPE" default:"unix" help:"tcp or unix."`
	Type         string `name:"type" env:"REDIS_TYPE" default:"SINGLE" help:"SINGLE, SENTINEL or CLUSTER."`
	URL          string `name:"url" env:"REDIS_URL" help:"Where; memory of this process without."`
	Auth         string `name:"auth" env:"REDIS_AUTH" help:"A password, or user:password."`
	SentinelAuth string `name:"sentinel-auth" env:"REDIS_SENTINEL_AUTH" help:"The same for Sentinels."`
	TLS          bool   `name:"tls" type:"gobool" env:"REDIS_TLS" help:"Over TLS."`
	Cert         string `name:"cert" env:"REDIS_TLS_CLIENT_CERT" help:"The certificate shown to it."`
	Key          string `name:"key" env:"REDIS_TLS_CLIENT_KEY" help:"Its key."`
	CACert       string `name:"cacert" env:"REDIS_TLS_CACERT" help:"Its CAs."`
	AnyName      bool   `name:"any-name" type:"gobool" env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" help:"Refused."`
	Prefix       string `name:"prefix" env:"CACHE_KEY_PREFIX" help:"The prefix of keys."`
}

// An otherSetting is one that changes what envoyproxy/ratelimit answers, and that stint has not.
type otherSetting struct{ name, usual, refused, leftOut string }

// otherSettings are refused with a reason or left out with a warning, if they have other values than
// the usual ones. What is not here and no field of a command changes no answer: settings of pools,
// caches, retries, logs and statistics, and of files and memcached, which are refused.
var otherSettings = []otherSetting{
	{name: "SHADOW_MODE", usual: "false", refused: "rules have a field shadow each, and not all at once: take it out"},
	{name: "GLOBAL_SHADOW_MODE", usual: "false", refused: "rules have a field shadow each, and not all at once: take it out"},
	{name: "QUOTA_MODE", usual: "false", refused: "descriptors have a field quota_mode each, and not all at once: take it out"},
	{name: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", usual: "false", refused: "denied hits count under all limits of a request, and not only under those that deny: take it out"},
	{name: "GRPC_CLIENT_TLS_SAN", refused: "names of clients are not checked: give GRPC_CLIENT_TLS_CACERT a CA of their own"},
	{name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", leftOut: "the control plane is asked without them"},
	{name: "REDIS_PERSECOND", usual: "false", leftOut: "all limits are in one Redis"},
	{name: "REDIS_TIMEOUT", usual: "10s", leftOut: "STINT_STORE_TIMEOUT says how long a decision may take"},
	{name: "RESPONSE_DYNAMIC_METADATA", usual: "false", leftOut: "answers have no dynamic_metadata"},
	{name: "LIMIT_LIMIT_HEADER", usual: "RateLimit-Limit", leftOut: "the header has its usual name"},
	{name: "LIMIT_REMAINING_HEADER", usual: "RateLimit-Remaining", leftOut: "the header has its usual name"},
	{name: "LIMIT_RESET_HEADER", usual: "RateLimit-Reset", leftOut: "the header has its usual name"},
	{name: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", usual: "false", leftOut: "/healthcheck is healthy without a configuration, too: /readyz is not"},
	{name: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", usual: "false", leftOut: "/healthcheck is healthy without Redis, too"},
	{name: "USE_STATSD", usual: "false", leftOut: "metrics are for Prometheus"},
	{name: "USE_DOG_STATSD", usual: "false", leftOut: "metrics are for Prometheus"},
	{name: "PROMETHEUS_PATH", usual: "/metrics", leftOut: "metrics are at /metrics"},
}

// given returns the other settings that are left out. The error says why one is refused.
func given() (left []otherSetting, err error) {
	for _, o := range otherSettings {
		value := cmp.Or(os.Getenv(o.name), o.usual)
		if o.usual == "false" {
			on, err := strconv.ParseBool(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: want true or false", o.name, value)
			}
			value = strconv.FormatBool(on)
		}
		switch {
		case value == o.usual:
		case o.refused != "":
			return nil, fmt.Errorf("%s: %s", o.name, o.refused)
		default:
			left = append(left, o)
		}
	}
	return left, nil
}

// A goBool reads a boolean as envoyproxy/ratelimit does, by [strconv.ParseBool].
type goBool struct{}

// IsBool implements [kong.BoolMapper].
func (goBool) IsBool() bool { return true }

// Decode implements [kong.Mapper].
func (goBool) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	value := true // the value of a flag without one
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		text := fmt.Sprint(ctx.Scan.Pop().Value)
		var err error
		if value, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q: want true or false", text)
		}
	}
	target.SetBool(value)
	return nil
}

// Help is what "stint ratelimit --help" says below the summary.
func (ratelimitCmd) Help() string {
	return `Reads the environment of envoyproxy/ratelimit and runs stint serve. What that program
has and stint has not is refused, or left out with a warning. A link by the name
ratelimit to this program does the same. docs/ENVOY.md has the details.`
}

// Run serves until SIGTERM or SIGINT.
func (c *ratelimitCmd) Run(e *env) error {
	left, err := given()
	if err != nil {
		return err
	}
	args, err := c.serve()
	if err != nil {
		return err
	}
	line, err := e.read(args)
	if err != nil {
		return err
	}
	serve := line.Selected().Target.Addr().Interface().(*serveCmd)
	serve.anyone = true // as in envoyproxy/ratelimit
	for _, o := range left {
		serve.logger(e).Warn("left out: "+o.leftOut, "setting", o.name)
	}
	return serve.Run(e)
}

// serve returns the arguments of stint serve.
func (c *ratelimitCmd) serve() ([]string, error) {
	rules, err := c.Config.url()
	if err != nil {
		return nil, err
	}
	store, err := c.Redis.url()
	if err != nil {
		return nil, err
	}
	if c.TLS && (c.TLSCert == "" || c.TLSKey == "") {
		return nil, errors.New("GRPC_SERVER_USE_TLS: goes with GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	}
	format := "text" // as in envoyproxy/ratelimit, for any other value
	if strings.EqualFold(c.LogFormat, "json") {
		format = "json"
	}
	args := []string{"serve", "--http", "127.0.0.1:0", "--rules", rules, "--log-format", format}
	if os.Getenv("STINT_RULES_COPY") == "" {
		args = append(args, "--rules-copy", "none")
	}
	set := func(flag, value string) {
		if value != "" {
			args = append(args, flag+"="+value) // one word, since the value may begin with a hyphen
		}
	}
	address := net.JoinHostPort(c.GRPCHost, strconv.Itoa(c.GRPCPort))
	if c.GRPCSocket != "" {
		address = "unix:" + c.GRPCSocket
	}
	set("--grpc", address)
	set("--probes", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if c.Prometheus {
		set("--probes", c.PrometheusAddr)
	}
	if c.TLS {
		set("--tls-cert", c.TLSCert)
		set("--tls-key", c.TLSKey)
		set("--tls-client-ca", c.ClientCA)
	}
	if c.Tracing {
		set("--otlp", c.TracingURL)
	}
	if c.Fields {
		set("--rls-headers", "draft06")
	}
	set("--store", store)
	if store != "" {
		set("--store-prefix", c.Redis.Prefix)
	}
	return args, nil
}

// url returns the URL of the rules, for --rules.
func (c *configEnv) url() (string, error) {
	if c.Type != "GRPC_XDS_SOTW" {
		return "", fmt.Errorf("CONFIG_TYPE: %s: want GRPC_XDS_SOTW; for files, convert them with stint import envoy-ratelimit, and run stint serve", c.Type)
	}
	q := url.Values{"node": {c.Node}}
	for _, entry := range strings.Split(c.Metadata, ",") {
		if key, value, ok := strings.Cut(entry, "="); ok {
			q.Set("metadata."+key, value)
		}
	}
	for name, value := range map[string]string{"cacert": c.CACert, "cert": c.Cert, "key": c.Key, "server_name": c.SAN} {
		if c.TLS && value != "" {
			q.Set(name, value)
		}
	}
	u := url.URL{Scheme: "xdss", Host: c.Server}
	if !c.TLS {
		u.Scheme = "xds"
		q.Set("insecure", "true") // as in envoyproxy/ratelimit
	}
	for name, on := range map[string]bool{"start_empty": c.StartEmpty, "merge_domains": c.Merge} {
		if on {
			q.Set(name, "true")
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// url returns the URL of the store, "" for memory.
func (c *redisEnv) url() (string, error) {
	scheme, rest, given := strings.Cut(c.URL, "://")
	if !given {
		scheme, rest = "redis", c.URL
	}
	secure := c.TLS || scheme == "rediss"
	q := url.Values{}
	switch kind := strings.ToUpper(c.Type); {
	case c.Backend != "redis" && c.Backend != "":
		return "", fmt.Errorf("BACKEND_TYPE: %s: want redis", c.Backend)
	case c.URL == "":
		return "", nil
	case c.Auth != "" && strings.Contains(rest, "@"):
		return "", errors.New("REDIS_AUTH: REDIS_URL has a user or a password, too: give one of them")
	case c.AnyName:
		return "", errors.New("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: names of servers are checked: STINT_STORE can name one, as server_name=NAME")
	case kind == "SENTINEL":
		master, sentinels, ok := strings.Cut(rest, ",")
		if !ok {
			return "", errors.New("REDIS_URL: want the name of the master and then Sentinels, separated by commas")
		}
		rest = sentinels
		q.Set("master_set", master)
	case kind != "SINGLE" && kind != "CLUSTER":
		return "", fmt.Errorf("REDIS_TYPE: %s: want SINGLE, SENTINEL or CLUSTER", c.Type)
	case kind == "SINGLE" && (c.Socket == "unix" && !given || scheme == "unix"):
		return (&url.URL{Scheme: "unix", User: userOf(c.Auth), Path: "/" + strings.TrimPrefix(rest, "/")}).String(), nil
	}
	for name, value := range map[string]string{"cacert": c.CACert, "cert": c.Cert, "key": c.Key} {
		if secure && value != "" {
			q.Set(name, value)
		}
	}
	if user := userOf(c.SentinelAuth); user != nil && q.Has("master_set") {
		q.Set("sentinel_username", user.Username())
		word, _ := user.Password()
		q.Set("sentinel_password", word)
	}
	text := "redis://"
	if secure {
		text = "rediss://"
	}
	if user := userOf(c.Auth); user != nil {
		text += user.String() + "@"
	}
	if strings.Contains(rest, "?") {
		return text + rest + "&" + q.Encode(), nil
	}
	return strings.TrimSuffix(text+rest+"?"+q.Encode(), "?"), nil
}

// userOf returns the user of REDIS_AUTH, which is a password or user:password; nil for "".
func userOf(auth string) *url.Userinfo {
	user, word, both := strings.Cut(auth, ":")
	switch {
	case auth == "":
		return nil
	case !both:
		return url.UserPassword("", auth)
	}
	return url.UserPassword(user, word)
}
