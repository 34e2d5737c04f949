package rules

import (
	"errors"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesource"
)

// SetOverride puts an override of a source in force until it is replaced. It sets no timer for the
// override's end.
func SetOverride(p *policy.Policy, o *rulesource.Override) error {
	own, err := parseOverride(o)
	if err != nil {
		return err
	}
	return p.SetOverride(o.Rule, o.Key, own)
}

// parseOverride reads what an override does.
func parseOverride(o *rulesource.Override) (own policy.Override, err error) {
	switch {
	case o.Removed:
		return own, nil
	case o.Unlimited || o.Block:
		return policy.Override{Unlimited: o.Unlimited, Block: o.Block}, nil
	}
	for _, one := range o.Limits {
		l, err := stint.Parse(one)
		if err != nil {
			return policy.Override{}, err
		}
		own.Limits = append(own.Limits, l)
	}
	if len(own.Limits) == 0 {
		return own, errors.New("it has no limits")
	}
	return own, nil
}
