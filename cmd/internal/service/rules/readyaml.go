package rules

import "github.com/stint-dev/stint/policy/rulesfile"

// ReadYAML returns the tree of a YAML document that need not be a rules file,
// under the bounds of one. The error is [rulesfile.Errors].
func ReadYAML(data []byte) (*rulesfile.Node, error) { return readYAML(data) }
