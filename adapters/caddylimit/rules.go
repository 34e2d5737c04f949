package caddylimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// rules returns the rules of the handler.
func (h *Handler) rules() (*policy.Rules, error) {
	given := 0
	for _, one := range []bool{len(h.Limits) > 0, h.RulesFile != "", len(h.Rules) > 0} {
		if one {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, errors.New("give one of limits, rules_file and rules")
	case len(h.Limits) == 0 && (len(h.Key) > 0 || h.OnMissing != "" || h.Shadow):
		return nil, errors.New("key, on_missing and shadow go with limits: rules have fields of these names")
	}
	file, err := h.file()
	if err != nil {
		return nil, err
	}
	for _, w := range file.Warnings() {
		h.log.Warn("rules", "name", h.Name, "warning", w.String())
	}
	rules := policy.Compile(file)
	for _, name := range rules.Attributes() {
		if plain, ok := attributeOf(name); ok {
			return nil, fmt.Errorf("the attribute %s: write %s, of which a client cannot choose the spelling", name, plain)
		}
	}
	return rules, nil
}

// file reads rules from RulesFile or Rules.
func (h *Handler) file() (*rulesfile.File, error) {
	switch {
	case len(h.Limits) > 0:
		return h.inline()
	case len(h.Rules) > 0:
		return rulesfile.Parse(h.Rules)
	}
	text, err := os.ReadFile(h.RulesFile)
	if err != nil {
		return nil, err
	}
	read := readYAML
	if strings.EqualFold(filepath.Ext(h.RulesFile), ".json") {
		read = rulesfile.ReadJSON
	}
	root, err := read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.RulesFile, err)
	}
	for _, f := range root.Fields {
		if f.Name == "trusted_proxies" || f.Name == "client_ip_header" || f.Name == "store" {
			return nil, fmt.Errorf("%s:%d:%d: %s is not for Caddy: it is trusted_proxies and client_ip_headers of its server, and store of this handler", h.RulesFile, f.Line, f.Column, f.Name)
		}
	}
	file, err := rulesfile.Decode(root)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.RulesFile, err)
	}
	return file, nil
}

// inline converts the limits to a rule, so that they are decided like any other.
func (h *Handler) inline() (*rulesfile.File, error) {
	type rule struct {
		Name      string            `json:"name"`
		Match     map[string]string `json:"match,omitempty"`
		Key       []string          `json:"key"`
		Limits    []string          `json:"limits"`
		OnMissing string            `json:"on_missing,omitempty"`
		Shadow    bool              `json:"shadow,omitempty"`
	}
	one := rule{Name: h.Name, Key: []string{}, Limits: h.Limits, OnMissing: h.OnMissing, Shadow: h.Shadow}
	var declared []string
	if len(h.Key) == 0 {
		one.Key = []string{"ip"}
	}
	for i, part := range h.Key {
		attribute, ok, err := attributeOfPart(part)
		switch {
		case err != nil:
			return nil, fmt.Errorf("key: part %d: %w", i+1, err)
		case part == "":
			return nil, fmt.Errorf("key: part %d is empty", i+1)
		case !ok:
			attribute = partName + strconv.Itoa(i)
			declared = append(declared, attribute)
		}
		one.Key = append(one.Key, attribute)
		if strings.Contains(part, "{http.request.uri.path.") {
			one.Match = map[string]string{"path": "/**"} // so that ambiguous paths are refused
		}
	}
	text, err := json.Marshal(struct {
		Attributes     []string `json:"attributes,omitempty"`
		IgnorePathCase bool     `json:"ignore_path_case"`
		Rules          []rule   `json:"rules"`
	}{declared, true, []rule{one}})
	if err != nil {
		return nil, err
	}
	return rulesfile.Parse(text)
}

// partName begins the attributes for texts of the key.
const partName = "key_"

// part returns the text of the key that an attribute stands for.
func (h *Handler) part(name string) (string, bool) {
	number, ok := strings.CutPrefix(name, partName)
	if !ok || len(h.Key) == 0 {
		return "", false
	}
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= len(h.Key) {
		return "", false
	}
	return h.Key[i], true
}
