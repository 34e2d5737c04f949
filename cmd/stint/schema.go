package main

import (
	"io"

	"github.com/stint-dev/stint/cmd/internal/service/rules"
)

type schemaCmd struct{}

// Help is what "stint schema --help" says.
func (schemaCmd) Help() string {
	return `Editors with a YAML language server check a file against it when the file says
so in a comment:

    stint schema > stint.schema.json
    # yaml-language-server: $schema=stint.schema.json`
}

// Run prints the schema.
func (schemaCmd) Run(e *env) error {
	_, err := io.WriteString(e.out, rules.Schema())
	return err
}
