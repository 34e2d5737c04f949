package stint

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/meter"
)

// rates are what others write for a count per period.
var rates = map[string]string{"rps": "/s", "qps": "/s", "rpm": "/m", "qpm": "/m", "rph": "/h"}

// hinted gives the error of a count a better hint, where it is clear what was meant by it.
func (p *parser) hinted(err error, count word) error {
	var wrong *ParseError
	if !errors.As(err, &wrong) {
		return err
	}
	text := strings.ToLower(count.s)
	digits := len(text) - len(strings.TrimLeft(text, "0123456789_"))
	switch {
	case digits > 0 && rates[text[digits:]] != "":
		wrong.Hint = fmt.Sprintf("write %q", wording.Shorten(text[:digits])+rates[text[digits:]])
	case digits > 0 && text[digits:] == "r" && strings.HasPrefix(p.text[count.at+len(count.s):], "/"): // as nginx writes it
		wrong.Hint = fmt.Sprintf("write %q", wording.Shorten(text[:digits]+p.text[count.at+len(count.s):]))
	case digits > 0 && text == p.text && len(text) == digits+1 && units[text[digits:]] != 0:
		wrong.Hint = fmt.Sprintf("write %q", wording.Shorten(text[:digits])+"/"+text[digits:])
	case text == "unlimited" || text == "none" || text == "inf" || text == "infinite":
		wrong.Hint = "leave the limit out where there is none; in a rule, write unlimited: true"
	case text != "" && strings.Trim(text, "0") == "":
		wrong.Hint = "at least 1; where nothing may pass, write block: true in a rule"
	case strings.Contains(text, "."):
		if whole := wholePer(text, p.text[count.at+len(count.s):]); whole != "" {
			wrong.Hint = fmt.Sprintf("write %q", whole)
		}
	}
	return wrong
}

// optionHint returns what would be right in place of a word that is no option, such as sliding.
func (p *parser) optionHint(name string) string {
	const general = "options are an algorithm, burst N, debt N, parts N, relaxed, count_denied, ban DURATION, from DAY, from first and in ZONE"
	var begun []string
	for _, known := range meter.AlgorithmNames() {
		if strings.HasPrefix(known, strings.ToLower(name)+"_") {
			begun = append(begun, known)
		}
	}
	if len(begun) > 0 {
		return fmt.Sprintf("did you mean %s? %s", strings.Join(begun, ", "), general)
	}
	return p.suggest(name, slices.Values(append(meter.AlgorithmNames(), optionNames...)), general)
}

// wholePer returns a count with a fraction, such as 0.5, in the period of a text, such as /s,
// as a whole number in several periods: 1 per 2s. It is empty where that is not clear.
func wholePer(count, rest string) string {
	whole, part, _ := strings.Cut(count, ".")
	n, err := strconv.ParseUint(whole+part, 10, 32)
	if err != nil || n == 0 || len(part) > 6 {
		return ""
	}
	periods := uint64(1)
	for range part {
		periods *= 10
	}
	a, b := n, periods
	for b > 0 {
		a, b = b, a%b
	}
	unit := strings.TrimLeft(strings.TrimPrefix(strings.TrimLeft(rest, " /"), "per"), " ")
	unit, _, _ = strings.Cut(unit, " ")
	if _, known := units[strings.ToLower(unit)]; !known {
		return ""
	}
	if len(unit) > 1 {
		unit = " " + strings.TrimSuffix(unit, "s") + "s"
	}
	return fmt.Sprintf("%d per %d%s", n/a, periods/a, unit)
}

// zoneHint returns what would be right in place of a zone, whose case matters.
func zoneHint(zone string) string {
	var title strings.Builder
	for i, c := range strings.ToLower(zone) {
		if i == 0 || strings.ContainsRune("/_-", rune(zone[i-1])) {
			c = []rune(strings.ToUpper(string(c)))[0]
		}
		title.WriteRune(c)
	}
	for _, like := range []string{strings.ToUpper(zone), title.String()} {
		if _, err := meter.LoadZone(like); err == nil && len(zone) <= maxName {
			return fmt.Sprintf("did you mean %q?", like)
		}
	}
	return "write a name of the IANA database such as Europe/Paris or UTC"
}
