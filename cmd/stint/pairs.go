package main

import "strings"

// pairOf reads NAME=VALUE.
func pairOf(flag, text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", "", usage(flag, "%q: write NAME=VALUE", text)
	}
	return name, value, nil
}

// headerOf reads a header in the value of a flag: "NAME: VALUE" as in curl, or NAME=VALUE
// as in other flags. No name contains : or =, so the first of them ends the name.
func headerOf(text string) (name, value string, err error) {
	at := strings.IndexAny(text, ":=")
	if at <= 0 || strings.ContainsAny(text, "\r\n\x00") || strings.ContainsAny(text[:at], " \t") {
		return "", "", usage("--header", "%q is no header: write NAME=VALUE or 'NAME: VALUE', such as X-Api-Key=partner-1", text)
	}
	name, value = text[:at], text[at+1:]
	if text[at] == ':' {
		value = strings.Trim(value, " \t")
	}
	return name, value, nil
}
