package rules

import (
	"strings"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// settingSchema is the JSON schema of the fields of [Settings].
const settingSchema = `    "trusted_proxies": {
      "description": "Addresses and ranges of the proxies whose word about the client's address is taken. The default is none.",
      "oneOf": [{"type": "string", "minLength": 2}, {"type": "array", "items": {"type": "string", "minLength": 2}}]
    },
    "client_ip_header": {
      "description": "The one header that trusted proxies speak through: X-Forwarded-For (the default), Forwarded, or one that holds one address, such as X-Real-IP.",
      "type": "string",
      "minLength": 1
    },
    "store": {
      "description": "Where what keys have used is kept, as a URL. The default is the memory of the process.",
      "type": "string",
      "minLength": 1
    },
    "overrides": {
      "description": "How customers' own limits of a database are held: all in memory (in_memory, the default), or asked for as customers come (on_demand).",
      "type": "string",
      "enum": ["in_memory", "on_demand"]
    },
`

// Schema returns the JSON schema of rules files: [rulesfile.Schema] with the fields of [Settings].
func Schema() string {
	const properties = "  \"properties\": {\n"
	s := strings.Replace(rulesfile.Schema, properties, properties+settingSchema, 1)
	return strings.Replace(s, "/policy/rulesfile/schema.json", "/cmd/schema.json", 1)
}
