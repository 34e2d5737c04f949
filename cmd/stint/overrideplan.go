package main

import (
	"fmt"
	"strings"

	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rulesapi"
)

type overridePlanCmd struct {
	editorFlags `embed:""`
	authorFlag  `embed:""`
	Customer    string `arg:"" name:"name=value" help:"The attribute that selects the tier in rules, and the customer's value of it, such as jwt.org=acme."`
	Plan        string `arg:"" optional:"" help:"The plan's name. Without it, the command prints the customer's plan."`
	Remove      bool   `help:"Remove the plan: the attribute's value selects it again."`
	reasonFlag  `embed:""`
	jsonFlag    `embed:""`
}

// Help is what "stint override plan --help" says below the summary.
func (overridePlanCmd) Help() string {
	return `The customer has the plan in every rule whose tiers use the attribute, instead of
the plan that the attribute's value selects.

For example:

    stint override plan jwt.org=acme pro --rules sqlite:stint.db
    stint override plan jwt.org=acme
    stint override plan jwt.org=acme --remove`
}

// Run sets, shows or removes a plan.
func (c *overridePlanCmd) Run(e *env) error {
	attribute, value, ok := strings.Cut(c.Customer, "=")
	switch {
	case !ok || attribute == "" || value == "":
		return usage("name=value", "%q: write the attribute and its value, such as jwt.org=acme", c.Customer)
	case c.Remove && c.Plan != "":
		return usage("--remove", "and a plan: give one of them")
	}
	if c.Reason != "" && c.Plan == "" && !c.Remove {
		return usage("--reason", "has no effect without a plan or --remove")
	}
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // what was written is committed
	was := ""
	if c.Plan != "" || c.Remove {
		if was, err = d.SetPlan(e.ctx, attribute, value, c.Plan, c.author(), c.Reason); err != nil {
			return editorError(err)
		}
	}
	p := rulesource.Plan{Attribute: attribute, Value: value}
	if !c.Remove {
		if p, err = d.Plan(e.ctx, attribute, value); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(e.out, rulesapi.PlanOf(p))
	}
	text := fmt.Sprintf("%s=%s: %s", attribute, shown(value), planText(p.Plan))
	if was != "" && was != p.Plan {
		text += ", before " + planText(was)
	}
	if note := d.PlanConsequences(e.ctx, attribute, c.Plan); note != "" {
		text += "\n    " + note
	}
	return wrap(e.out, text+"\n", "    ")
}

func planText(plan string) string {
	if plan == "" {
		return "the plan that the value names"
	}
	return "plan " + plan
}

type overridePlansCmd struct {
	editorFlags `embed:""`
	Attribute   string `arg:"" optional:"" help:"Only those of this attribute."`
	mostFlag    `embed:""`
	jsonFlag    `embed:""`
}

// Run lists plans, page by page: there may be millions.
func (c *overridePlansCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	out := &listing{w: e.out, json: c.JSON}
	for p, err := range pages(c.Last, func(last rulesource.Plan, n int) ([]rulesource.Plan, error) {
		return d.Plans(e.ctx, c.Attribute, last, n)
	}) {
		if err == nil {
			text := fmt.Sprintf("%s=%s: %s\n    set %s by %s\n", p.Attribute, shown(p.Value), planText(p.Plan), clock(p.Created), shown(p.Author))
			err = out.one(rulesapi.PlanOf(p), text)
		}
		if err != nil {
			return err
		}
	}
	return out.end()
}
