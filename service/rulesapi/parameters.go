package rulesapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// A parameter is one of the query, as the document at [OpenAPI] declares it.
type parameter struct {
	Ref    string `json:"$ref"`
	Name   string
	In     string
	Schema struct{ Type string }
}

// parameters are those of each operation, "GET /v1/rules".
var parameters = sync.OnceValue(func() map[string]map[string]parameter {
	var all struct {
		Paths      map[string]map[string]struct{ Parameters []parameter }
		Components struct{ Parameters map[string]parameter }
	}
	if err := json.Unmarshal(openAPI, &all); err != nil {
		panic(err) // a test reads it
	}
	known := make(map[string]map[string]parameter)
	for path, operations := range all.Paths {
		for method, operation := range operations {
			of := make(map[string]parameter)
			for _, p := range operation.Parameters {
				if p.Ref != "" {
					p = all.Components.Parameters[p.Ref[strings.LastIndexByte(p.Ref, '/')+1:]]
				}
				if p.In == "query" {
					of[p.Name] = p
				}
			}
			known[strings.ToUpper(method)+" "+path] = of
		}
	}
	return known
})

// checkQuery refuses parameters that an operation does not have, and one that comes twice: a wrong name of
// a key would mean everybody under a rule that has none.
func checkQuery(e *endpoint, query url.Values) error {
	known, declared := parameters()[e.method+" "+e.path]
	for name, values := range query {
		p, ok := known[name]
		switch {
		case !declared:
		case !ok && len(known) == 0:
			return &InputError{name, errors.New("unknown: there are no parameters here")}
		case !ok:
			return &InputError{name, fmt.Errorf("unknown: there is %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))}
		case len(values) > 1 && p.Schema.Type != "array":
			return &InputError{name, errors.New("it comes twice")}
		}
	}
	return nil
}
