package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/yuin/goldmark/ast"

	"github.com/stint-dev/stint"
)

// linkLimits makes each limit that stands as code in a document's text a link to the
// lab, where it can be tried; and the first mention of each algorithm.
func linkLimits(tree ast.Node, from []byte) {
	var found []*ast.CodeSpan
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link, *ast.Heading:
			return ast.WalkSkipChildren, nil
		case *ast.CodeSpan:
			if entering {
				found = append(found, n)
			}
		}
		return ast.WalkContinue, nil
	})
	mentioned := make(map[string]bool)
	for _, span := range found {
		text := plain(span, from)
		limit, err := stint.Parse(text)
		if err != nil && !mentioned[text] && !strings.Contains(text, " ") {
			mentioned[text] = true
			limit, err = stint.Parse("10/s " + text)
		}
		if err != nil {
			continue
		}
		link := ast.NewLink()
		link.Destination = []byte("lab/index.html#" + tried(limit))
		link.Title = []byte("Try it in the lab")
		span.Parent().ReplaceChild(span.Parent(), span, link)
		link.AppendChild(link, span)
	}
}

// mostTried is how many requests a period of the lab's first arrivals has at most.
const mostTried = 2000

// tried returns the state of the lab, as its address holds it, that shows a limit by
// itself, on arrivals around an edge of its periods.
func tried(limit stint.Limit) string {
	period := limit.Period()
	if period <= 0 { // of the calendar
		period = 24 * time.Hour
	}
	count := min(max(limit.Count(), 1), mostTried)
	state := url.Values{
		"kinds": {""}, "own": {limit.String()}, "count": {fmt.Sprint(count)}, "period": {length(period)}, "burst": {fmt.Sprint(count)},
		"size": {fmt.Sprint(count)}, "rate": {fmt.Sprintf("%d/%s", 2*count, length(period))}, "gap": {length(max(period/10, 1))}, "horizon": {length(6 * period)},
	}
	return strings.ReplaceAll(state.Encode(), "+", "%20")
}

// length writes a duration as the lab reads it: without parts that are 0.
func length(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
