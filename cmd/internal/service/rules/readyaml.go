package rules

import "github.com/stint-dev/stint/policy"

// ReadYAML returns the tree of a YAML document that need not be a rules file,
// under the bounds of one. The error is [policy.Errors].
func ReadYAML(data []byte) (*policy.Node, error) { return readYAML(data) }
