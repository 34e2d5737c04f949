package rulesfile

// KnownFields are the fields that the decoder knows, by the names of the schema's
// definitions.
var KnownFields = map[string][]string{
	"document": documentFields,
	"rule":     ruleFields,
	"limit":    limitFields,
	"cost":     costFields,
	"price":    priceFields,
	"count":    countFields,
	"override": overrideFields,
	"tiers":    tiersFields,
	"plan":     planFields,
	"denied":   deniedFields,
	"jwt":      jwtFields,
}

// MaxBytes is the most that a file may hold.
const MaxBytes = maxBytes
