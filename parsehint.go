package stint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/meter"
)

// hinted gives the error of a count a better hint, where it is clear what was meant by it.
func (p *parser) hinted(err error, count word) error {
	var wrong *ParseError
	if !errors.As(err, &wrong) {
		return err
	}
	switch text := strings.ToLower(count.s); {
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
