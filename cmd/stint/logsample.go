package main

import "strings"

// sampleOf reads --log-sample: of each rule, the part of its denials that is logged.
func sampleOf(all []string) (map[string]float64, error) {
	sample := make(map[string]float64, len(all))
	for _, text := range all {
		rule, part, _ := strings.Cut(text, "=")
		share, err := parseShare(part)
		if err != nil || rule == "" || part == "" {
			return nil, usage("--log-sample", "%q: want a rule and a part, such as login=100%% or scrapers=0.1%%", text)
		}
		sample[rule] = float64(share)
	}
	return sample, nil
}
