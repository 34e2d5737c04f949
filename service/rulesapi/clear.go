package rulesapi

import (
	"net/http"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/rulesdb"
)

// NamesClients returns the attribute by which a rule names clients in clear, such as
// header.x-api-key in an override, or "". Only operators may see the text of such a rule.
func NamesClients(r *rulesfile.Rule) (attribute string) {
	all := append(append([]match.Conjunction{}, r.Match...), r.Unless...)
	for i := range r.Overrides {
		all = append(all, r.Overrides[i].When)
	}
	for _, when := range all {
		for i := range when {
			if c := &when[i]; !c.Present && !c.Absent && c.Sent() {
				return c.Name
			}
		}
	}
	if r.Tiers != nil && r.Tiers.By.Sent() {
		return r.Tiers.By.Name
	}
	return ""
}

// Private returns a replacement for every text about a rule that names clients, where hashes are
// shown instead of keys. It is "" if the rule names none.
func Private(r *rulesfile.Rule) string {
	if attribute := NamesClients(r); attribute != "" {
		return "it names clients by " + attribute + ": the values are left out here, as they may be secrets; stint inspect and GET /v1/rule show them to an operator's token"
	}
	return ""
}

// Fault returns why the newest rules are not in force. The text may quote the rules, so roles that
// see hashes instead of keys learn only that they are not in force.
func Fault(text string, clear bool) string {
	if text == "" || clear {
		return text
	}
	return "the newest rules are not in force: the log and operators' commands say why"
}

// mayRead returns an error for a viewer who asks for a document that names clients. A document that
// cannot be parsed is for operators only, too.
func (h *Handler) mayRead(c *call, r rulesdb.Revision) error {
	if c.role != rulesdb.Viewer {
		return nil
	}
	f, err := h.editor.Check(r.Name, r.Document)
	if err != nil {
		return &requestError{http.StatusForbidden, "this document is for the roles operator and admin, and yours is viewer: it cannot be read as rules"}
	}
	for _, one := range f.Rules.File().Rules() {
		if attribute := NamesClients(one); attribute != "" {
			return &requestError{http.StatusForbidden, "this document is for the roles operator and admin, and yours is viewer: the rule " + one.Name + " names clients by " + attribute}
		}
	}
	return nil
}
