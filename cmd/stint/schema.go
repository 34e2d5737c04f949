package main

import (
	"io"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/ruletest"
)

type schemaCmd struct {
	Tests bool `help:"Print the schema of test files instead."`
}

// Help is what "stint schema --help" says.
func (schemaCmd) Help() string {
	return `Editors with a YAML language server check a file against it when the file says
so in a comment:

    stint schema > stint.schema.json
    # yaml-language-server: $schema=stint.schema.json`
}

// Run prints the schema.
func (c *schemaCmd) Run(e *env) error {
	schema := rules.Schema()
	if c.Tests {
		schema = ruletest.Schema
	}
	_, err := io.WriteString(e.out, schema)
	return err
}
