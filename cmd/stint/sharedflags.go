package main

import (
	"log"
	"log/slog"
	"os"

	"github.com/stint-dev/stint/service/server"
)

// The flags that several commands have.

// A jsonFlag asks for JSON in place of text for people.
type jsonFlag struct {
	JSON bool `name:"json" help:"Write JSON."`
}

// A reasonFlag is the reason for an act.
type reasonFlag struct {
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
}

// A lastsFlag is how long an override or a block lasts.
type lastsFlag struct {
	For string `placeholder:"DURATION" help:"How long, such as 90s, 1h30m or 30d, by the database's clock. The default is without an end."`
}

// A mostFlag is the greatest number of entries in a list.
type mostFlag struct {
	Last int `name:"limit" short:"n" placeholder:"N" help:"At most N. The default is all."`
}

// A prefixFlag selects customers.
type prefixFlag struct {
	Prefix string `placeholder:"TEXT" help:"Only those whose key has this prefix."`
}

// revisionFlags say why a revision is published, and over which one.
type revisionFlags struct {
	Comment string `placeholder:"TEXT" help:"Why, for the log."`
	Parent  int64  `default:"-1" placeholder:"N" help:"Publish only if revision N is in force; 0 means that there is none. The default is the one in force when the command starts."`
}

// addressFlags are the admin address of a server, and the token for it.
type addressFlags struct {
	Server    string `env:"STINT_SERVER" instead:"backend" placeholder:"URL" help:"The admin address of a server, such as http://127.0.0.1:9090."`
	TokenFile string `env:"STINT_SERVER_TOKEN_FILE" placeholder:"FILE" help:"A file with your token, if the server needs one."`
}

// A secretFlag is the secret of the servers.
type secretFlag struct {
	SecretFile string `env:"STINT_SECRET_FILE" placeholder:"FILE" help:"A file with the secret of the servers, for rules whose keys are hashed with it."`
}

// A logFlag is the format of the log.
type logFlag struct {
	LogFormat string `env:"STINT_LOG_FORMAT" enum:"text,json" default:"text" more:"" help:"The format of the log: text (the default) or json."`
}

// logger returns the log, on standard error. What Go itself logs goes there too.
func (c *logFlag) logger(e *env) *slog.Logger {
	logger := slog.New(slog.NewTextHandler(e.err, nil))
	if c.LogFormat == "json" {
		logger = slog.New(slog.NewJSONHandler(e.err, nil))
	}
	if e.err == os.Stderr {
		log.SetFlags(0)
		log.SetOutput(server.ErrorLog(logger).Writer())
	}
	return logger
}

// requestFlags describe a request.
type requestFlags struct {
	Method    string   `placeholder:"POST" help:"The method."`
	Host      string   `placeholder:"NAME" help:"The host."`
	Path      string   `placeholder:"/login" help:"The path as on the request line."`
	IP        string   `name:"ip" placeholder:"ADDRESS" help:"The client's address."`
	Header    []string `sep:"none" placeholder:"NAME=VALUE" help:"A header; may be repeated."`
	Attribute []string `sep:"none" placeholder:"NAME=VALUE" help:"Any attribute, such as jwt.sub=anna; may be repeated."`
	Sent      int64    `placeholder:"BYTES" help:"The length of the body, for costs that count it."`
}
