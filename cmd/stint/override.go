package main

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rulesapi"
)

type overrideCmd struct {
	Set    overrideSetCmd    `cmd:"" help:"Give a customer limits of their own under a rule."`
	Get    overrideGetCmd    `cmd:"" help:"Show the limits of a customer's own under a rule."`
	Load   overrideLoadCmd   `cmd:"" help:"Set many overrides of a database from CSV: all of them, or none."`
	Export overrideExportCmd `cmd:"" help:"Write the overrides in force as CSV."`
	List   overrideListCmd   `cmd:"" help:"List the overrides in force."`
	Remove overrideRemoveCmd `cmd:"" help:"End an override: the rule's limits apply again."`
	Plan   overridePlanCmd   `cmd:"" help:"Move a customer to a plan of the rules' tiers."`
	Plans  overridePlansCmd  `cmd:"" help:"List customers' plans."`
}

// Help is what "stint override --help" says below the summary.
func (overrideCmd) Help() string {
	return `An override is a customer's own limits under a rule. What the customer has used
stays counted when one begins, changes or ends.

For example:

    export STINT_RULES=postgres://stint@127.0.0.1/stint
    stint override set api partner-1 1000/m
    stint override set api partner-1 unlimited --for 1h --reason 'migration'
    stint override get api partner-1
    stint override list api --prefix partner-
    stint override remove api partner-1
    stint override plan jwt.org=acme pro`
}

// customerFlags name a customer by attributes, from which a rule makes its key.
type customerFlags struct {
	Attribute []string `sep:"none" placeholder:"NAME=VALUE" help:"An attribute of the customer, instead of the key; may be repeated. The rule forms its key from them."`
}

// customer returns the customer and the other arguments. The first argument is the key,
// unless --attribute is given.
func (c *customerFlags) customer(args []string) (rulesapi.Customer, []string, error) {
	if len(c.Attribute) > 0 {
		return rulesapi.Customer{Attributes: c.Attribute}, args, nil
	}
	if len(args) == 0 {
		return rulesapi.Customer{}, nil, usage("key", "missing: write the customer's key as stint explain prints it, '' if the rule has one key for all, or --attribute NAME=VALUE")
	}
	return rulesapi.Customer{Key: args[0]}, args[1:], nil
}

// only is customer for commands that take no other arguments.
func (c *customerFlags) only(args []string) (rulesapi.Customer, error) {
	customer, rest, err := c.customer(args)
	if err == nil && len(rest) > 0 {
		err = usage("key", "%q: one key, or --attribute in its place", rest)
	}
	return customer, err
}

type overrideSetCmd struct {
	editorFlags   `embed:""`
	authorFlag    `embed:""`
	customerFlags `embed:""`
	Rule          string   `arg:"" help:"The rule's name."`
	Args          []string `arg:"" name:"key> <limit" help:"The customer's key, and the limits, such as 100/m; separate several with commas. Or unlimited, or block."`
	lastsFlag     `embed:""`
	reasonFlag    `embed:""`
	jsonFlag      `embed:""`
}

// Help is what "stint override set --help" says below the summary.
func (overrideSetCmd) Help() string {
	return `The rule must be in force, and the limits are read as those of rules.

For example:

    stint override set api partner-1 '1000 per minute' --rules sqlite:stint.db
    stint override set api partner-1 50/s,100_000/d --for 30d --reason 'trial'
    stint override set api unlimited --attribute header.x-api-key=partner-1
    stint override set api 'header.x-api-key="partner-1"' 5/s`
}

// Run sets an override.
func (c *overrideSetCmd) Run(e *env) error {
	customer, limits, err := c.customer(c.Args)
	if err != nil {
		return err
	}
	if len(limits) == 0 {
		return usage("limit", "missing: after the key, '' if the rule has one key for all, write one such as 100/m, or unlimited, or block")
	}
	o := rulesource.Override{Rule: c.Rule, Reason: c.Reason}
	for _, text := range limits {
		o.Limits = append(o.Limits, splitLimits(text)...)
	}
	if len(o.Limits) == 1 {
		switch o.Limits[0] {
		case "unlimited":
			o.Limits, o.Unlimited = nil, true
		case "block":
			o.Limits, o.Block = nil, true
		}
	}
	return setOverride(e, &c.editorFlags, c.author(), customer, o, c.For, c.JSON)
}

// setOverride sets or removes an override, and prints what held before.
func setOverride(e *env, c *editorFlags, author string, customer rulesapi.Customer, o rulesource.Override, lasts string, asJSON bool) error {
	d, err := rulesapi.ParseLasts(lasts)
	if err != nil {
		return &usageError{"--for", err}
	}
	o.Author = author
	return changeOverride(e, c, customer, o, asJSON, func(k *rulesapi.Editor, o rulesource.Override) (was, now rulesource.Override, err error) {
		return k.SetOverride(e.ctx, o, d)
	})
}

// changeOverride calls do to change the override of a customer, and prints what held before.
func changeOverride(e *env, c *editorFlags, customer rulesapi.Customer, o rulesource.Override, asJSON bool,
	do func(k *rulesapi.Editor, o rulesource.Override) (was, now rulesource.Override, err error)) error {
	k, err := c.open(e)
	if err != nil {
		return err
	}
	defer k.Close() // what was written is committed
	keyOf := k.Key
	if o.Removed {
		keyOf = k.HeldKey
	}
	if o.Key, err = keyOf(e.ctx, o.Rule, customer); err != nil {
		return editorError(err)
	}
	was, now, err := do(k, o)
	if err != nil {
		return editorError(err)
	}
	if !o.Removed && strings.Contains(o.Key, "*") { // in rules, * makes a pattern
		fmt.Fprintf(e.err, "stint: this is for the one key %s, whose * stands for itself: for all keys of a pattern, give the rule overrides with when: in its file\n", shown(o.Key))
	}
	if asJSON {
		return printJSON(e.out, rulesapi.OverrideOf(now))
	}
	given, _ := netip.ParseAddr(customer.Key)
	if at, err := netip.ParseAddr(o.Key); err == nil && given.IsValid() && at != given.Unmap() {
		fmt.Fprintf(e.err, "stint: %s is counted with its whole range, under %s\n", given, at)
	}
	usual := ""
	if now.Removed {
		usual = k.Usual(e.ctx, o.Rule, o.Key)
	}
	text := fmt.Sprintf("%s %s: %s", o.Rule, shown(o.Key), changed(was, now, usual))
	if note := k.Consequences(e.ctx, now); note != "" {
		text += "\n    " + note
	}
	return wrap(e.out, text+"\n", "    ")
}

// changed says what an override does now, or that the usual limits hold, and what held before.
func changed(was, now rulesource.Override, usual string) string {
	text := usual
	switch {
	case was.Block && now.Removed:
		return "was " + effect(was) + ", and is allowed again, within " + usual
	case !now.Removed:
		text = effect(now)
	}
	if was.Removed {
		return text
	}
	return text + ", before " + effect(was)
}

// effect says what an override does.
func effect(o rulesource.Override) string {
	text := strings.Join(o.Limits, ", ")
	switch {
	case o.Unlimited:
		text = "unlimited"
	case o.Block:
		text = "blocked"
	}
	if !o.Expires.IsZero() {
		text += " until " + clock(o.Expires)
	}
	return text
}

type overrideGetCmd struct {
	editorFlags   `embed:""`
	customerFlags `embed:""`
	Rule          string   `arg:"" help:"The rule's name."`
	Args          []string `arg:"" optional:"" name:"key" help:"The customer's key."`
	jsonFlag      `embed:""`
}

// Run shows an override.
func (c *overrideGetCmd) Run(e *env) error {
	customer, err := c.only(c.Args)
	if err != nil {
		return err
	}
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	key, err := d.HeldKey(e.ctx, c.Rule, customer)
	if err != nil {
		return editorError(err)
	}
	o, err := d.Override(e.ctx, c.Rule, key)
	if err != nil {
		return err
	}
	noted := d.Noted(e.ctx)(o)
	if c.JSON {
		return printJSON(e.out, noted)
	}
	return wrap(e.out, overrideText(o, noted.Note), "    ")
}

// overrideText returns two lines for people: the override, and who set it and why.
func overrideText(o rulesource.Override, note string) string {
	text := fmt.Sprintf("%s %s: %s%s\n", o.Rule, shown(o.Key), effect(o), but(note))
	why := "    set " + clock(o.Created)
	if o.Author != "" {
		why += " by " + shown(o.Author)
	}
	if o.Reason != "" {
		why += ": " + inLine(o.Reason)
	}
	return text + why + "\n"
}

// but adds what keeps an override from its effect.
func but(note string) string {
	if note == "" {
		return ""
	}
	return ", but it " + note
}

type overrideListCmd struct {
	editorFlags `embed:""`
	Rule        string `arg:"" optional:"" help:"Only those of this rule."`
	prefixFlag  `embed:""`
	mostFlag    `embed:""`
	jsonFlag    `embed:""`
}

// Run lists overrides, page by page: there may be millions.
func (c *overrideListCmd) Run(e *env) error {
	d, err := c.open(e)
	if err != nil {
		return err
	}
	defer d.Close() // it has only read
	if err := ruleOfOverrides(e, d, c.Rule); err != nil {
		return err
	}
	out, noted := &listing{w: e.out, json: c.JSON}, d.Noted(e.ctx)
	for o, err := range overridesOf(e, d, c.Rule, c.Prefix, c.Last) {
		if err == nil {
			j := noted(o)
			err = out.one(j, overrideText(o, j.Note))
		}
		if err != nil {
			return err
		}
	}
	return out.end()
}

// ruleOfOverrides refuses a name that no rule has, unless overrides of a rule that is gone have it.
func ruleOfOverrides(e *env, d *rulesapi.Editor, rule string) error {
	if rule == "" {
		return nil
	}
	if held, err := d.Overrides(e.ctx, rulesdb.Page{Rule: rule, N: 1}); err != nil || len(held) > 0 {
		return err
	}
	return editorError(d.HasRule(e.ctx, rule))
}

// overridesOf yields the overrides of a rule, or of all rules if that is "", whose keys have
// a prefix: at most most, or all if most is 0.
func overridesOf(e *env, d *rulesapi.Editor, rule, prefix string, most int) iter.Seq2[rulesource.Override, error] {
	return pages(most, func(last rulesource.Override, n int) ([]rulesource.Override, error) {
		return d.Overrides(e.ctx, rulesdb.Page{Rule: rule, Prefix: prefix, AfterRule: last.Rule, AfterKey: last.Key, N: n})
	})
}

type overrideRemoveCmd struct {
	editorFlags   `embed:""`
	authorFlag    `embed:""`
	customerFlags `embed:""`
	Rule          string   `arg:"" help:"The rule's name."`
	Args          []string `arg:"" optional:"" name:"key" help:"The customer's key."`
	reasonFlag    `embed:""`
}

// Run removes an override.
func (c *overrideRemoveCmd) Run(e *env) error {
	customer, err := c.only(c.Args)
	if err != nil {
		return err
	}
	o := rulesource.Override{Rule: c.Rule, Removed: true, Reason: c.Reason}
	return setOverride(e, &c.editorFlags, c.author(), customer, o, "", false)
}
