package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/gateways"
	"github.com/stint-dev/stint/service/importers/nginxrules"
	"github.com/stint-dev/stint/service/rules"
)

// importCmd has a command for each kind of configuration that becomes rules.
type importCmd struct {
	EnvoyRatelimit importEnvoyCmd      `cmd:"" name:"envoy-ratelimit" help:"The YAML of envoyproxy/ratelimit, Envoy's reference rate limit service."`
	Nginx          importNginxCmd      `cmd:"" help:"The limit_req and limit_conn directives of an nginx configuration."`
	IngressNginx   importIngressCmd    `cmd:"" name:"ingress-nginx" help:"The annotations of ingress-nginx."`
	Traefik        importTraefikCmd    `cmd:"" help:"Traefik's middlewares and the routers that use them."`
	Kong           importKongCmd       `cmd:"" help:"Kong's declarative configuration."`
	EnvoyLocal     importEnvoyLocalCmd `cmd:"" name:"envoy-local" help:"Envoy's local rate limit filter."`
}

// gatewayFiles is the configuration of a gateway.
type gatewayFiles struct {
	Config    []string `arg:"" help:"Its configuration: files, or directories whose .yaml, .yml, .json and .toml files are read, those in sub-directories too; - is standard input."`
	lossyFlag `embed:""`
}

// Help is what the help of each such command says below its summary.
func (gatewayFiles) Help() string {
	return `Writes rules to standard output, and to standard error what has another meaning
than before or is not converted. If a limit is not kept, or none is found, the
exit status is 1, unless --lossy is given; the rules are written all the same.
docs/MOVING.md has the details.`
}

type importIngressCmd struct{ gatewayFiles }

// Run reads the configuration and writes the rules.
func (c *importIngressCmd) Run(e *env) error {
	return c.convert(e, "limit-rps or limit-rpm", gateways.IngressNginx)
}

type importTraefikCmd struct{ gatewayFiles }

// Run reads the configuration and writes the rules.
func (c *importTraefikCmd) Run(e *env) error { return c.convert(e, "rateLimit", gateways.Traefik) }

type importKongCmd struct {
	gatewayFiles
	Consumer string `default:"consumer" placeholder:"ATTR" help:"The attribute that has the name of a request's consumer. Default: ${default}."`
}

// Run reads the configuration and writes the rules.
func (c *importKongCmd) Run(e *env) error {
	return c.convert(e, "rate-limiting", func(docs []gateways.Document) ([]byte, importers.Notes, error) {
		return gateways.Kong(docs, gateways.KongOptions{Consumer: c.Consumer})
	})
}

type importEnvoyLocalCmd struct{ gatewayFiles }

// Run reads the configuration and writes the rules.
func (c *importEnvoyLocalCmd) Run(e *env) error {
	return c.convert(e, "local_ratelimit", gateways.EnvoyLocal)
}

// convert reads the files and writes the rules that a gateway's converter makes of them.
func (f *gatewayFiles) convert(e *env, what string, convert func([]gateways.Document) ([]byte, importers.Notes, error)) error {
	var docs []gateways.Document
	var wrong wrongFiles
	var about importers.Notes
	for _, path := range f.Config {
		files := []string{path}
		if path != "-" {
			var err error
			if files, err = withEnding(path, &about, ".yaml", ".yml", ".json", ".toml"); err != nil {
				return err
			}
		}
		for _, name := range files {
			read, err := readGateway(e, name)
			wrong.add(name, err)
			docs = append(docs, read...)
		}
	}
	if len(docs) == 0 && wrong != nil {
		return wrong.error()
	}
	yaml, notes, err := convert(docs)
	if err != nil {
		return err
	}
	return f.write(e, strings.Join(f.Config, " "), what, yaml, slices.Concat(about, wrong.lost(), notes))
}

func readGateway(e *env, name string) ([]gateways.Document, error) {
	if name == "-" {
		data, err := rules.ReadAll(e.in)
		if err != nil {
			return nil, err
		}
		return gateways.Read("(standard input)", data)
	}
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	return gateways.Read(name, data)
}

type importNginxCmd struct {
	Config    string `arg:"" help:"Its configuration, such as /etc/nginx/nginx.conf, or what nginx -T prints; - is standard input. Included files are read too."`
	lossyFlag `embed:""`
}

// Help is what "stint import nginx --help" says below the summary.
func (importNginxCmd) Help() string {
	return `Writes rules to standard output, and to standard error what has another meaning
than before or is not converted. If a limit is not kept, or none is found, the
exit status is 1, unless --lossy is given; the rules are written all the same.
docs/MOVING.md has the details.

For example:

    stint import nginx /etc/nginx/nginx.conf >stint.yaml
    nginx -T | stint import nginx - >stint.yaml
    stint serve -c stint.yaml`
}

// Run reads the configuration and writes the rules.
func (c *importNginxCmd) Run(e *env) error {
	name, read := c.Config, readFile
	if name == "-" {
		name = "(standard input)"
		read = func(file string) ([]byte, error) {
			if file == name {
				return rules.ReadAll(e.in)
			}
			return readFile(file)
		}
	}
	r := nginxrules.Reader{Read: read, Glob: filepath.Glob}
	all, err := r.File(name)
	if err != nil {
		return err
	}
	yaml, notes, err := nginxrules.Convert(all)
	if err != nil {
		return err
	}
	return c.write(e, c.Config, "limit_req or limit_conn", yaml, notes)
}

// wrongFiles are the files of a configuration that cannot be read, or texts in them, with the errors.
// All others are imported.
type wrongFiles []struct {
	name string
	err  error
}

// add adds a file, unless err is nil.
func (w *wrongFiles) add(name string, err error) {
	if err != nil {
		*w = append(*w, struct {
			name string
			err  error
		}{name, err})
	}
}

// error returns the errors joined, for when no file could be read.
func (w wrongFiles) error() error {
	errs := make([]error, len(w))
	for i, one := range w {
		errs[i] = one.err
	}
	return errors.Join(errs...)
}

// lost returns the errors as notes of lost limits, for when other files could be read.
func (w wrongFiles) lost() (notes importers.Notes) {
	for _, one := range w {
		notes.Lose(one.name, "NOT KEPT, since it is wrong:\n%v", one.err)
	}
	return notes
}

// lossyFlag says whether an import that loses limits is an error.
type lossyFlag struct {
	Lossy bool `help:"Exit with status 0 also if a limit is not kept, or none is found."`
}

// write writes the rules of a configuration to standard output, if they are valid, and the
// notes to standard error. Without --lossy, it returns an error if limits were lost, or if
// there were none.
func (f lossyFlag) write(e *env, from, what string, yaml []byte, notes importers.Notes) error {
	say(e, notes)
	if _, err := rules.Decode("the rules that "+from+" becomes", yaml); err != nil {
		return err
	}
	if _, err := e.out.Write(yaml); err != nil {
		return err
	}
	switch lost := notes.Lost(); {
	case f.Lossy:
		return nil
	case lost > 0:
		return fmt.Errorf("%s: limits are lost, as the notes above with NOT KEPT say (%d); --lossy accepts that", from, lost)
	case string(yaml) == importers.None:
		return fmt.Errorf("%s: no %s in it: rules that limit nothing; --lossy accepts that", from, what)
	}
	return nil
}

func say(e *env, notes importers.Notes) {
	for _, n := range notes {
		fmt.Fprintf(e.err, "stint: %v\n", n)
	}
}

// readFile reads a file. A file larger than configurations and rules are is an error.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	data, err := rules.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// configFiles returns the files of a configuration in the order of their names: path, or if it is a
// directory all files in and below it. It notes what lies there and is no file; Kubernetes' ..data,
// to which the files of a mounted ConfigMap are links, goes without saying.
func configFiles(path string, notes *importers.Notes) (files []string, err error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []string{path}, err
	}
	err = fs.WalkDir(os.DirFS(path), ".", func(below string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.Join(path, filepath.FromSlash(below))
		mounted := strings.HasPrefix(d.Name(), "..")
		switch info, err := os.Stat(name); {
		case d.IsDir() && mounted:
			return fs.SkipDir
		case d.IsDir():
		case err != nil || info.Mode().IsRegular(): // who reads it meets the error again
			files = append(files, name)
		case !info.IsDir():
			notes.Say(name, "not read: it is no plain file")
		case !mounted:
			notes.Say(name, "not read: a link to a directory")
		}
		return nil
	})
	return files, err
}

// hidden reports whether the name of a file, or of a directory between it and dir, begins with a dot.
func hidden(dir, file string) bool {
	return strings.Contains(strings.TrimPrefix(file, filepath.Clean(dir)), string(filepath.Separator)+".")
}

// ends reports whether the name of a file has one of the endings.
func ends(file string, endings ...string) bool {
	return slices.Contains(endings, strings.ToLower(filepath.Ext(file)))
}

// withEnding returns those files of a configuration whose names have one of the endings, and
// notes the others.
func withEnding(path string, notes *importers.Notes, endings ...string) (kept []string, err error) {
	files, err := configFiles(path, notes)
	if err != nil || slices.Equal(files, []string{path}) {
		return files, err
	}
	var others []string
	for _, name := range files {
		switch {
		case ends(name, endings...):
			kept = append(kept, name)
		case !hidden(path, name):
			others = append(others, name)
		}
	}
	if len(kept) == 0 {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("no file there whose name ends with %s", strings.Join(endings, " or "))}
	}
	if others != nil {
		notes.Say(path, "not read, since their names end otherwise: %s", strings.Join(others, ", "))
	}
	return kept, nil
}
