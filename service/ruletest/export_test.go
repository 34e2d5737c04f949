package ruletest

// KnownFields is what the decoder takes, by the names of the schema's
// definitions.
var KnownFields = map[string][]string{
	"document": documentFields, "test": testFields, "request": requestFields, "expect": expectFields,
}
