package importers

import (
	"bytes"
	"cmp"
	"encoding/base64"
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
	// Data are the texts of a ConfigMap, with empty lines in front as in [Split]. Coded are those
	// in its binaryData, and the texts of a Secret.
	Data, Coded []Entry
}

// An Entry is the text of a field in line Line.
type Entry struct {
	Line int
	Text []byte
}

// ObjectsOf returns the objects of Kubernetes that a document is: one, or those of a List. It
// returns nil for another document.
func ObjectsOf(root *rulesfile.Node) []Object { return objects(root, "") }

// objects are the objects of a document, or of an item in a list of such a kind.
func objects(n *rulesfile.Node, listed string) []Object {
	o := Object{Kind: listed, Line: n.Line}
	fields := map[string]*rulesfile.Node{}
	for _, f := range n.Fields {
		if f.Value == nil {
			continue
		}
		if fields[f.Name] = f.Value; f.Name == "kind" {
			o.Kind, o.Line = f.Value.Value, f.Line
		}
	}
	switch items := fields["items"]; {
	case o.Kind == "ConfigMap" && (fields["data"] != nil || fields["binaryData"] != nil):
		o.Data, o.Coded = entries(fields["data"], false), entries(fields["binaryData"], true)
	case o.Kind == "" || listed == "" && fields["apiVersion"] == nil:
		return nil
	case o.Kind == "Secret":
		o.Coded = append(entries(fields["data"], true), entries(fields["stringData"], false)...)
	case strings.HasSuffix(o.Kind, "List") && items != nil:
		all := []Object{}
		for _, item := range items.Items {
			if item != nil {
				all = append(all, objects(item, cmp.Or(strings.TrimSuffix(o.Kind, "List"), "thing"))...)
			}
		}
		return all
	}
	return []Object{o}
}

// entries returns the texts of a map. Coded ones are read from base64.
func entries(n *rulesfile.Node, coded bool) (all []Entry) {
	if n == nil {
		return nil
	}
	for _, f := range n.Fields {
		if f.Value == nil || f.Value.Kind != rulesfile.String {
			continue
		}
		text := []byte(strings.Repeat("\n", f.Value.Line) + f.Value.Value)
		if coded {
			text, _ = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Value.Value), "")) // what can be read of it
		}
		all = append(all, Entry{f.Line, text})
	}
	return all
}
