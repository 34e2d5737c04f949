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

// headerOf reads what a flag says of a header, "NAME: VALUE" as curl has it or
// NAME=VALUE as the other flags do. No name holds either sign, so the first one
// ends it.
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
