package rulesdb

// SchemaVersion is the version of the schema that this program was made for.
func SchemaVersion() int { return len(migrations) }
