package rulesfile

import _ "embed"

// Schema is the JSON schema of rules files, for editors.
//
//go:embed schema.json
var Schema string
