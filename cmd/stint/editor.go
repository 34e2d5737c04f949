package main

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strings"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

// backendFlags say which database keeps the rules.
type backendFlags struct {
	Rules             string `env:"STINT_RULES" instead:"backend" placeholder:"URL" help:"The database of rules: sqlite:FILE, postgres://USER@HOST/NAME or mysql://USER@HOST/NAME."`
	RulesPasswordFile string `env:"STINT_RULES_PASSWORD_FILE" placeholder:"FILE" help:"A file with the database's password, so that the URL needs none."`

	makes bool // database makes a SQLite file that is missing
}

// database opens the database. Close what it returns.
func (c *backendFlags) database() (*rulesdb.DB, error) {
	if c.Rules == "" {
		return nil, usage("--rules", "missing: write the database of rules, such as --rules sqlite:stint.db")
	}
	if !c.makes {
		if err := existing(c.Rules); err != nil {
			return nil, err
		}
	}
	db, err := rulesdb.Open(c.Rules, rulesdb.Options{PasswordFile: c.RulesPasswordFile})
	if err != nil {
		return nil, &usageError{"--rules", err}
	}
	return db, nil
}

// existing refuses a SQLite file that is missing. Opening it would make it, and a command
// with a mistyped name would find nothing without an error.
func existing(url string) error {
	file, ok := strings.CutPrefix(url, "sqlite:")
	if _, err := os.Stat(file); ok && file != "" && !strings.Contains(file, "?") && errors.Is(err, fs.ErrNotExist) {
		return usage("--rules", "%s is not there: stint rules migrate makes it", url)
	}
	return nil
}

// editorFlags say where the rules are kept: in a database, or behind a server.
type editorFlags struct {
	backendFlags `embed:""`
	addressFlags `embed:""`
	secretFlag   `embed:""`
}

// open opens the database or the server that keeps the rules. Close what it returns.
func (c *editorFlags) open(e *env) (*rulesapi.Editor, error) {
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return nil, err
	}
	if c.Server != "" {
		if c.Rules != "" {
			return nil, usage("--server", "goes in place of --rules: give one of both, on the line if both $STINT_SERVER and $STINT_RULES are set")
		}
		k, err := rulesapi.Dial(c.Server, c.TokenFile)
		if err != nil {
			return nil, &usageError{"--server", err}
		}
		return rulesapi.New(k, checkRules, secret), nil
	}
	if c.Rules == "" {
		return nil, usage("--rules", "missing: write the database of rules, such as --rules sqlite:stint.db, or the admin address of a server, such as --server http://127.0.0.1:9090")
	}
	db, err := c.database()
	if err != nil {
		return nil, err
	}
	if err := db.CheckSchema(e.ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return rulesapi.New(db, checkRules, secret), nil
}

// checkRules reads and checks a document as stint validate and nodes do.
func checkRules(name string, document []byte) (*rules.File, error) {
	f, err := rules.Decode(name, document)
	if err != nil {
		return nil, err
	}
	if err := bindable(f); err != nil {
		return nil, &rules.Error{Name: name, Err: err}
	}
	return f, nil
}

// authorFlag says who acts, for the audit.
type authorFlag struct {
	Author string `placeholder:"NAME" help:"Your name in the audit. The default is the user name on this machine; a server takes it from the token."`
}

func (a *authorFlag) author() string {
	if a.Author != "" {
		return a.Author
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// editorError makes an error about an argument name that argument as its flag.
func editorError(err error) error {
	if in, ok := errors.AsType[*rulesapi.InputError](err); ok {
		return &usageError{in.Field, in.Err}
	}
	return err
}
