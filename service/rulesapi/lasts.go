package rulesapi

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseLasts parses a duration such as 90s, 1h30m or 30d; "" means for good.
func ParseLasts(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	const day, most = 24 * time.Hour, 36500
	d, err := time.ParseDuration(text)
	if number, ok := strings.CutSuffix(text, "d"); ok {
		var days int
		if days, err = strconv.Atoi(number); err == nil && days <= most {
			d = time.Duration(days) * day
		}
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is no time that something can last: write one such as 90s, 1h30m or 30d", text)
	}
	return d, nil
}
