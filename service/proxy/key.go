package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/stint-dev/stint/policy"
	"golang.org/x/net/http/httpguts"

	"github.com/stint-dev/stint/service/rules"
)

// ErrKey is for a key that OneRule does not know.
var ErrKey = errors.New("is no key")

// OneRule returns rules with one rule, for all requests, as flags of the command describe it. The key
// is "ip", the client's address; "header.NAME", a header's value, with one key for all requests
// without the header; or "none", one key for all. The error is [ErrKey], or says what is wrong with
// the limits.
func OneRule(name, key string, limits []string) (*rules.File, error) {
	attributes, err := keyAttributes(key)
	if err != nil {
		return nil, err
	}
	type rule struct {
		Name   string   `json:"name"`
		Key    []string `json:"key"`
		Limits []string `json:"limits"`
	}
	text, err := json.Marshal(map[string][]rule{"rules": {{name, attributes, limits}}})
	if err != nil {
		return nil, err
	}
	parsed, err := policy.Parse(text)
	if err != nil {
		return nil, err
	}
	return &rules.File{Name: "--limit.json", Document: text, Rules: parsed, Warnings: parsed.File().Warnings()}, nil
}

// keyAttributes returns the attributes that --key names. Each value of theirs has a key of its own.
func keyAttributes(text string) ([]string, error) {
	name, isHeader := strings.CutPrefix(text, "header.")
	switch {
	case text == "ip":
		return []string{text}, nil
	case text == "none":
		return []string{}, nil
	case isHeader && strings.EqualFold(name, "host"):
		return []string{"host"}, nil // the attribute whose spelling rules normalise
	case isHeader && httpguts.ValidHeaderFieldName(name):
		return []string{text}, nil
	}
	return nil, fmt.Errorf("%q %w: write ip, header.NAME such as header.X-Api-Key, or none", text, ErrKey)
}
