package rulesfile

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/usage"
)

// A Cost is what a request costs: a number, or the greatest of some attributes; times its
// price.
type Cost struct {
	Fixed   int64               // 0 if attributes say the cost
	By      []request.Attribute // the greatest value counts
	Default int64               // when the request has none of them
	Times   request.Attribute   // a factor of that; none if it has no name
	Sent    int64               // how many bytes of the body are one unit more; 0 counts none
	Min     int64               // Min and Max bound all this together
	Max     int64
	Price   *Price // a factor of the cost, and of the response's; nil for 1
}

// A Price is a factor of the cost, by the value of an attribute such as the model.
type Price struct {
	By      request.Attribute
	Models  map[string]int64
	Names   []string // of Models, in the order of the file
	Default int64    // for values that are not listed; 0 refuses the request
}

// Of returns the price for a value, and whether there is one.
func (p *Price) Of(value string) (price int64, ok bool) {
	if price = p.Models[value]; price == 0 {
		price = p.Default
	}
	return price, price > 0
}

// maxModels bounds the values that a price lists.
const maxModels = 1000

func (c *Cost) attributes() []request.Attribute {
	all := slices.Clone(c.By)
	if c.Times.Name != "" {
		all = append(all, c.Times)
	}
	if c.Price != nil && c.Price.By.Name != "" {
		all = append(all, c.Price.By)
	}
	return all
}

func (d *decoder) charge(r *Rule, f Field, t *trail) {
	if f.Name == "count" {
		d.count(r, f.Value, t)
		return
	}
	r.Cost = d.ruleCost(r, f.Value, t)
}

// ruleCost reads what a request costs, or, if the response says that, what is charged before.
func (d *decoder) ruleCost(r *Rule, n *Node, t *trail) Cost {
	if !slices.ContainsFunc(n.Fields, func(f Field) bool { return slices.Contains(costFields[ofRequest:], f.Name) }) {
		return d.cost(n, t, costFields[:ofRequest])
	}
	cost := Cost{Fixed: 1}
	var price *Price
	var ask *Node
	for _, f := range d.fields(n, t, "", costFields...) {
		switch at := t.in(f.Name); f.Name {
		case "response":
			d.truth(r.response(), f.Value, at)
		case "usage":
			name := d.word(f.Value, at, usage.Names...)
			r.response().Usage, _ = usage.Named(name)
			r.response().Estimate, r.response().AskUsage = name != "", name == "openai"
		case "missing":
			r.response().Missing = d.number(f.Value, at, 0, math.MaxInt64)
		case "cut":
			r.response().Cut = d.boolean(f.Value, at)
		case "ask_usage":
			ask = f.Value
		case "reserve":
			cost = d.reserve(f.Value, at)
		case "price":
			price = d.price(f.Value, at)
		default:
			d.failAt(f.Line, f.Column, at, `what is charged before the response is "reserve", a number or such a map`,
				"%s beside a cost that the response says", f.Name)
		}
	}
	cost.Price = price
	d.checkResponse(r, n, t, ask)
	return cost
}

// checkResponse refuses fields that do not go together in a cost that the response says.
func (d *decoder) checkResponse(r *Rule, n *Node, t *trail, ask *Node) {
	switch {
	case has(n.Fields, "response") && has(n.Fields, "usage"):
		d.fail(n, t, "drop one of them", "both response and usage")
	case !has(n.Fields, "response") && !has(n.Fields, "usage"):
		d.fail(n, t, "say what of the response is the cost: response, or usage", "reserve and missing are for a cost that the response says")
	case r.response().Cut && r.response().Header != "":
		d.fail(n, t, "only a body can be cut: its bytes, JSON pointers into it, or usage", "cut beside a cost that a header says")
	case !has(n.Fields, "reserve"):
		d.fail(n, t, "what the request is charged until the response says its cost, such as reserve: 1000", "a cost that the response says, without reserve")
	}
	if ask == nil {
		return
	}
	if !r.response().AskUsage {
		d.fail(ask, t.in("ask_usage"), "drop the field", "ask_usage without usage: openai, the only one that is asked for")
	}
	r.response().AskUsage = d.boolean(ask, t.in("ask_usage")) && r.response().AskUsage
}

// reserve reads what is charged before the response. It may not be 0: a request that is
// charged nothing passes whatever the limit says.
func (d *decoder) reserve(n *Node, t *trail) Cost {
	c := d.cost(n, t, costFields[:ofReserve])
	if n.Kind == MapKind && (c.Min < 1 || c.Default < 1) {
		d.fail(n, t, "a request that reserves nothing passes, whatever others have used", "a reserve that may be 0: at least 1")
	}
	return c
}

// cost reads what a request costs, from a number or a map of these fields.
func (d *decoder) cost(n *Node, t *trail, fields []string) Cost {
	if n.Kind == Number {
		return Cost{Fixed: d.number(n, t, 1, math.MaxInt64)}
	}
	c := Cost{Default: 1, Min: 1, Max: math.MaxInt64}
	by := 0
	for _, f := range d.fields(n, t, `a number, or a map such as {"header": "x-cost", "max": 100}`, fields...) {
		at := t.in(f.Name)
		switch f.Name {
		case "attribute", "header":
			by++
			d.costBy(&c, f, at)
		case "times":
			if name, ok := d.text(f.Value, at, "the name of an attribute, such as body./n"); ok {
				c.Times, _ = d.attribute(f.Value.Line, f.Value.Column, at, name)
			}
		case "sent":
			c.Sent = d.number(f.Value, at, 1, math.MaxInt64)
		case "default":
			c.Default = d.number(f.Value, at, 0, math.MaxInt64)
		case "min":
			c.Min = d.number(f.Value, at, 0, math.MaxInt64)
		case "max":
			c.Max = d.number(f.Value, at, 1, math.MaxInt64)
		case "price":
			c.Price = d.price(f.Value, at)
		}
	}
	ofBody := func(a request.Attribute) bool { return a.Kind == request.Body }
	switch {
	case n.Kind != MapKind:
	case by == 0 && c.Price != nil && len(n.Fields) == 1:
		c.Fixed = 1
	case by != 1:
		d.fail(n, t, "", "a cost needs one of attribute and header")
	case c.Min > c.Max:
		d.fail(n, t, "", "min %d is above max %d", c.Min, c.Max)
	case c.Sent > 0 && !slices.ContainsFunc(c.By, ofBody):
		d.fail(n, t, "such as attribute: body./max_tokens, for which it is read", "sent without an attribute of the body")
	}
	return c
}

func (d *decoder) costBy(c *Cost, f Field, t *trail) {
	d.each(f.Value, t, func(n *Node, t *trail) {
		name, ok := d.text(n, t, "")
		if f.Name == "header" {
			name = "header." + name
		}
		if !ok {
			return
		}
		a, ok := d.attribute(n.Line, n.Column, t, name)
		switch {
		case !ok:
		case slices.Contains(c.By, a):
			d.fail(n, t, "", "attribute %q twice", a.Name)
		default:
			c.By = append(c.By, a)
		}
	})
	if len(c.By) > maxKey {
		d.fail(f.Value, t, "", "%d attributes: at most %d", len(c.By), maxKey)
	}
}

func (d *decoder) price(n *Node, t *trail) *Price {
	const hint = `such as {"by": "body./model", "models": {"small": 1, "large": 10}}`
	p := &Price{Models: make(map[string]int64)}
	fs := d.fields(n, t, hint, priceFields...)
	for _, f := range fs {
		switch at := t.in(f.Name); f.Name {
		case "by":
			if name, ok := d.text(f.Value, at, "the name of an attribute, such as body./model"); ok {
				p.By, _ = d.attribute(f.Value.Line, f.Value.Column, at, name)
			}
		case "models":
			for _, m := range d.fields(f.Value, at, "prices by the value of the attribute") {
				p.Names = append(p.Names, m.Name)
				p.Models[m.Name] = d.number(m.Value, at.in(m.Name), 1, math.MaxInt32)
			}
		case "default":
			p.Default = d.number(f.Value, at, 1, math.MaxInt32)
		}
	}
	for _, field := range []string{"by", "models"} {
		if n.Kind == MapKind && !has(fs, field) {
			d.fail(n, t, hint, "a price without %q", field)
		}
	}
	if len(p.Names) > maxModels {
		d.fail(n, t, "", "%d prices: at most %d", len(p.Names), maxModels)
	}
	return p
}

// String returns the price in words.
func (p *Price) String() string {
	var all []string
	for _, name := range p.Names[:min(len(p.Names), 20)] {
		all = append(all, fmt.Sprintf("%d for %s", p.Models[name], name))
	}
	if more := len(p.Names) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	if p.Default > 0 {
		return strings.Join(append(all, fmt.Sprintf("%d for any other", p.Default)), ", ")
	}
	return strings.Join(all, ", ") + "; any other is refused"
}
