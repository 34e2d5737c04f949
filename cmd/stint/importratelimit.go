package main

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/envoyrules"
	"github.com/stint-dev/stint/service/rules"
)

type importEnvoyCmd struct {
	Dir        string `arg:"" help:"Its configuration: a file, or a directory, with all files in and below it; a ConfigMap with them, too."`
	Compatible bool   `help:"Keep windows that begin at whole units since 1970, and count denied hits."`
	lossyFlag  `embed:""`
}

// Help is what "stint import envoy-ratelimit --help" says below the summary.
func (importEnvoyCmd) Help() string {
	return `Writes rules to standard output, and to standard error what has another meaning
than before or is wrong. If a file is wrong, or there is no limit at all, the exit
status is 1, unless --lossy is given; the other files, and other texts of a
ConfigMap, are imported all the same.
docs/ENVOY.md has the details.

For example:

    stint import envoy-ratelimit config/ >stint.yaml
    stint import envoy-ratelimit config/ --compatible >stint.yaml
    stint serve -c stint.yaml --grpc 127.0.0.1:8081`
}

// Run reads the configuration and writes the rules.
func (c *importEnvoyCmd) Run(e *env) error {
	r := domainReader{dir: c.Dir, known: map[string]*envoyrules.Domain{}}
	files, err := configFiles(c.Dir, &r.notes)
	if err != nil {
		return err
	}
	for _, name := range files {
		r.file(name)
	}
	if len(r.domains) == 0 && r.wrong != nil {
		say(e, r.notes)
		return r.wrong.error()
	}
	yaml, notes, err := envoyrules.Convert(e.ctx, r.domains, envoyrules.Options{Compatible: c.Compatible})
	if err != nil {
		return err
	}
	return c.write(e, c.Dir, "rate_limit", yaml, slices.Concat(r.notes, r.wrong.lost(), notes))
}

// A domainReader reads the domains of a configuration.
type domainReader struct {
	dir     string
	domains []*envoyrules.Domain
	known   map[string]*envoyrules.Domain
	notes   importers.Notes
	wrong   wrongFiles
}

// file reads one file: a configuration, or objects of Kubernetes with configurations in them.
// That service takes a file of any name as a configuration. Here, those that are not named as
// one, and have no descriptors, are passed over, such as a README.
func (r *domainReader) file(name string) {
	data, err := readFile(name)
	if err != nil {
		r.wrong.add(name, err)
		return
	}
	dot := name != r.dir && hidden(r.dir, name)
	switch none := !limits(data); {
	case dot && none:
	case dot:
		r.notes.Lose(name, "NOT KEPT: its name begins with a dot, and that service reads it unless RUNTIME_IGNOREDOTFILES is set: rename it, or take it away")
	case none && name != r.dir && !ends(name, ".yaml", ".yml"):
		r.notes.Say(name, "passed over: it has no descriptors")
	default:
		r.documents(name, importers.Split(data))
	}
}

// limits reports whether a text may be a configuration with limits.
func limits(text []byte) bool { return bytes.Contains(text, []byte("descriptors")) }

// documents reads the documents of a file. That service reads the first alone; objects of
// Kubernetes may follow each other.
func (r *domainReader) documents(name string, docs [][]byte) {
	kubernetes := false
	for i, doc := range docs {
		root, err := rules.ReadYAML(doc)
		var objects []importers.Object
		if err == nil {
			objects = importers.ObjectsOf(root)
		}
		if i == 0 {
			kubernetes = objects != nil
		}
		switch {
		case i > 0 && (!kubernetes || err == nil && objects == nil):
			line := 1 + bytes.IndexFunc(doc, func(c rune) bool { return c != '\n' })
			r.notes.Lose(place(name, line), "NOT KEPT: a document after the first, which that service does not read: write it into a file of its own, or take it out")
		case err != nil:
			r.wrong.add(name, &rules.Error{Name: name, Err: err})
		case kubernetes:
			for _, o := range objects {
				r.object(name, o)
			}
		default:
			r.domain(name, name, root)
		}
	}
}

// object reads the configurations in an object of Kubernetes.
func (r *domainReader) object(name string, o importers.Object) {
	if len(o.Data)+len(o.Coded) == 0 {
		r.notes.Say(place(name, o.Line), "a %s is passed over: it is no ConfigMap with data", o.Kind)
	}
	for _, text := range o.Coded {
		if limits(text.Text) {
			r.notes.Lose(place(name, text.Line), "NOT KEPT: a configuration in binaryData or a Secret: write it into the data of a ConfigMap")
		}
	}
	for _, text := range o.Data {
		at := place(name, text.Line)
		root, err := rules.ReadYAML(text.Text)
		if err != nil {
			r.wrong.add(at, &rules.Error{Name: name, Err: err})
			continue
		}
		r.domain(name, at, root)
	}
}

// domain reads one configuration in the file name.
func (r *domainReader) domain(name, at string, root *rulesfile.Node) {
	d, err := envoyrules.Decode(name, root)
	if err != nil {
		r.wrong.add(at, &rules.Error{Name: name, Err: err})
		return
	}
	other := r.known[d.Name]
	if other == nil {
		r.known[d.Name] = d
		r.domains = append(r.domains, d)
		return
	}
	if err := other.Merge(d, false); err != nil {
		r.wrong.add(at, err)
		return
	}
	r.notes.Say(at, "the domain %q is in a file before it: taken together, as that service does with MERGE_DOMAIN_CONFIG", d.Name)
}

func place(name string, line int) string { return fmt.Sprintf("%s:%d", name, line) }
