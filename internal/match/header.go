package match

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/stint-dev/stint/internal/request"
)

// HeaderFault returns why servers read the value of a header differently, or "" if they do not. The
// header is given as the attribute header.NAME. Blanks around a value do not belong to it, but
// HTTP/2 transmits them: some servers keep them, and HTTP/1.1 removes them. Bytes beyond ASCII are
// Latin-1 to some servers and UTF-8 to others, and some read a no-break space as a blank.
func HeaderFault(attribute, value string) (reason string) {
	if value == "" || strings.HasSuffix(attribute, "-bin") { // the bytes of a -bin header of gRPC are encoded
		return ""
	}
	if value[0] == ' ' || value[len(value)-1] == ' ' {
		return "blanks around its value, which some servers take away"
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' || c >= 0x7f {
			return "its value has a control character or what is not ASCII"
		}
	}
	if attribute == request.Authorization.String() {
		return credentialsFault(value)
	}
	return ""
}

// credentialsFault returns why servers read credentials differently. Many use only the last word,
// ignore invalid characters in base64, recognise a scheme by its first letters, or end a password
// at a NUL.
func credentialsFault(value string) (reason string) {
	scheme, rest, _ := strings.Cut(value, " ")
	switch {
	case strings.HasPrefix(rest, " "):
		return "more than one blank after the scheme"
	case strings.EqualFold(scheme, "Bearer"):
		if strings.ContainsAny(rest, " ,") {
			return "want Bearer and one token, without blanks and commas in it"
		}
	case strings.EqualFold(scheme, "Basic"):
		text, err := base64.StdEncoding.Strict().DecodeString(rest)
		if err != nil || bytes.IndexByte(text, ':') < 0 || bytes.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return "want Basic and USER:PASSWORD in base64, with its padding and without control characters" // RFC 7617, 2
		}
	case hasPrefixFold(scheme, "Bearer") || hasPrefixFold(scheme, "Basic"):
		return "want a blank after Bearer or Basic"
	}
	return ""
}

func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// credentials returns an Authorization header with "Basic" and "Bearer" spelled this way, since the
// case of a scheme does not matter.
func credentials(value string) string {
	for _, scheme := range [...]string{"Basic ", "Bearer "} {
		if hasPrefixFold(value, scheme) && !strings.HasPrefix(value, scheme) {
			return scheme + value[len(scheme):]
		}
	}
	return value
}
