// Package openapi holds what a server reads and answers to the description that the
// server gives of itself, in tests.
package openapi

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Description is a document of OpenAPI 3.1. It knows the words that the descriptions of
// stint use.
type Description struct{ document map[string]any }

// Parse reads a description.
func Parse(text []byte) (d Description, err error) {
	err = json.Unmarshal(text, &d.document)
	return d, err
}

// Operations yields each operation, such as "GET /v1/rules", and what the description says of it.
func (d Description) Operations(yield func(name string, operation map[string]any) bool) {
	for path, item := range d.document["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			if !yield(strings.ToUpper(method)+" "+path, operation.(map[string]any)) {
				return
			}
		}
	}
}

// Operation returns what the description says of a method of a path, nil if nothing.
func (d Description) Operation(method, path string) map[string]any {
	item, _ := d.document["paths"].(map[string]any)[path].(map[string]any)
	operation, _ := item[strings.ToLower(method)].(map[string]any)
	return operation
}

// Request returns an error if a body is not as described.
func (d Description) Request(method, path string, body any) error {
	request, _ := d.Operation(method, path)["requestBody"].(map[string]any)
	return d.content(request, "application/json", body)
}

// Answer returns an error if an answer is not as described for its status.
func (d Description) Answer(method, path string, status int, kind string, body any) error {
	responses, _ := d.Operation(method, path)["responses"].(map[string]any)
	response, ok := responses[fmt.Sprint(status)]
	if !ok {
		if status/100 == 2 {
			return fmt.Errorf("status %d is not described", status)
		}
		response = responses["default"]
	}
	return d.content(d.follow(response), kind, body)
}

func (d Description) content(of map[string]any, kind string, body any) error {
	kinds, _ := of["content"].(map[string]any)
	described, ok := kinds[kind].(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not described", kind)
	}
	return d.valid(described["schema"], body, "it")
}

// follow returns a part of the description, that to which it refers if it does.
func (d Description) follow(part any) map[string]any {
	object, _ := part.(map[string]any)
	ref, ok := object["$ref"].(string)
	if !ok {
		return object
	}
	var to any = d.document
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		to = to.(map[string]any)[name]
	}
	return d.follow(to)
}

// valid returns an error if a value at some place is not as a schema describes it.
func (d Description) valid(part, value any, at string) (err error) {
	schema := d.follow(part)
	if schema == nil {
		return fmt.Errorf("%s: there is no schema", at)
	}
	if one, ok := schema["oneOf"].([]any); ok {
		for _, s := range one {
			if err = d.valid(s, value, at); err == nil {
				return nil
			}
		}
		return err
	}
	types, ok := schema["type"].([]any)
	if !ok {
		types = []any{schema["type"]}
	}
	if kind := kindOf(value); !slices.Contains(types, any(kind)) && (kind != "integer" || !slices.Contains(types, any("number"))) {
		return fmt.Errorf("%s: %v is no %v", at, value, schema["type"])
	}
	switch value := value.(type) {
	case []any:
		if low, bounded := schema["minItems"].(float64); bounded && float64(len(value)) < low {
			return fmt.Errorf("%s: fewer than %v", at, low)
		}
		for i, one := range value {
			if err := d.valid(schema["items"], one, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return d.validObject(schema, value, at)
	case float64:
		if low, bounded := schema["minimum"].(float64); bounded && value < low {
			return fmt.Errorf("%s: %v is below %v", at, value, low)
		}
	}
	return nil
}

func (d Description) validObject(schema, value map[string]any, at string) error {
	most, bounded := schema["maxProperties"].(float64)
	if low, _ := schema["minProperties"].(float64); float64(len(value)) < low || bounded && float64(len(value)) > most {
		return fmt.Errorf("%s: %d members", at, len(value))
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, there := value[name.(string)]; !there {
			return fmt.Errorf("%s: %s is missing", at, name)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, one := range value {
		s, known := properties[name]
		if !known {
			s = schema["additionalProperties"]
		}
		if s == nil || s == false {
			return fmt.Errorf("%s: %s is not described", at, name)
		}
		if err := d.valid(s, one, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

// kindOf returns the type of a value, in the words of JSON Schema.
func kindOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case float64:
		if value == math.Trunc(value) {
			return "integer"
		}
	}
	return "number"
}
