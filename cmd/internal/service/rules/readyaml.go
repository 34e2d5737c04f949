package rules

import (
	"bytes"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// ReadYAML returns the tree of a YAML document that need not be a rules file,
// under the bounds of one. The error is [rulesfile.Errors].
func ReadYAML(data []byte) (*rulesfile.Node, error) { return readYAML(data) }

// ReadTree is ReadYAML, or its like for JSON where [Decode] would take a file of
// that name for it.
func ReadTree(name string, data []byte) (*rulesfile.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if isJSON(name, data) {
		return rulesfile.ReadJSON(data)
	}
	return readYAML(data)
}
