package main

import (
	"errors"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/ruletest"
)

// byRules answers whole requests by a rules file.
func (c *simulateCmd) byRules(e *env) error {
	file, err := rules.Read(c.Rules)
	if err != nil {
		return err
	}
	ok, err := ruletest.Lines(e.ctx, file, e.in, e.out)
	if err == nil && !ok {
		err = errors.New("not all answers are as expected")
	}
	return err
}
