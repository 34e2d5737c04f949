package importers

import (
	"bytes"
	"strings"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// Split returns the documents of a YAML file. Each begins with empty lines in place of
// the documents before it, so that errors have the line in the file.
func Split(data []byte) (all [][]byte) {
	var doc []byte
	something := false
	number := 0
	for line := range bytes.Lines(data) {
		text := bytes.TrimRight(line, " \t\r\n")
		if bytes.Equal(text, []byte("---")) {
			if something {
				all = append(all, doc)
			}
			doc, something, line, text = bytes.Repeat([]byte("\n"), number), false, []byte("\n"), nil
		}
		doc = append(doc, line...)
		something = something || len(text) > 0 && text[0] != '#'
		number++
	}
	if something || len(all) == 0 {
		all = append(all, doc)
	}
	return all
}

// An Object is an object of Kubernetes.
type Object struct {
	Kind string
	Line int
	// Data are the texts of a ConfigMap, with empty lines in front as in [Split].
	Data [][]byte
}

// ObjectOf returns a document as an object of Kubernetes; ok is false if it is none.
func ObjectOf(root *rulesfile.Node) (o Object, ok bool) {
	var data *rulesfile.Node
	version := false
	for _, f := range root.Fields {
		switch {
		case f.Value == nil:
		case f.Name == "kind":
			o.Kind, o.Line = f.Value.Value, f.Line
		case f.Name == "apiVersion":
			version = true
		case f.Name == "data":
			data = f.Value
		}
	}
	if o.Kind != "ConfigMap" || data == nil {
		return o, version && o.Kind != ""
	}
	for _, f := range data.Fields {
		if f.Value != nil && f.Value.Kind == rulesfile.String {
			o.Data = append(o.Data, []byte(strings.Repeat("\n", f.Value.Line)+f.Value.Value))
		}
	}
	return o, true
}
