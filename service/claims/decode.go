package claims

import (
	"errors"
	"math"
	"strconv"

	"github.com/stint-dev/stint/internal/strictjson"
)

// maxDepth is how deep ignored claims may be nested.
const maxDepth = 32

// A content is the claims of a token.
type content struct {
	claims   Claims
	audience []string // nil if there is none
	expires  float64  // in seconds since the Unix epoch; infinite for never
	begins   float64  // nbf or iat, whichever is later
}

var (
	errTwice = errors.New("a claim comes twice")
	errDeep  = errors.New("claims are nested too deep")
	errDate  = errors.New("a date is no number")
	errName  = errors.New("iss is no text")
)

// decode reads the claims of a token. An error means that different programs would read them
// differently, or that a registered claim has the wrong type.
func decode(payload []byte) (*content, error) {
	c := &content{claims: make(Claims), expires: forever, begins: math.Inf(-1)}
	r := strictjson.New(string(payload), "the token")
	seen := make(map[string]bool)
	err := r.Object(func(name string) error {
		if seen[name] {
			return errTwice
		}
		seen[name] = true
		return c.claim(&r, name)
	})
	if err == nil {
		err = r.End()
	}
	return c, err
}

// claim reads the claim with a name.
func (c *content) claim(r *strictjson.Reader, name string) error {
	kind := r.Next()
	if name == "aud" {
		return c.readAudience(r, kind)
	}
	value, scalar, err := readValue(r, 0)
	if err != nil {
		return err
	}
	switch name {
	case "exp", "nbf", "iat":
		if err := c.date(name, kind, value); err != nil {
			return err
		}
	case "iss":
		if kind != '"' {
			return errName
		}
	}
	if scalar {
		c.claims[name] = value
	}
	return nil
}

// date reads a date, in seconds since the Unix epoch. kind is the first character of the value.
func (c *content) date(name string, kind byte, value string) error {
	at, err := strconv.ParseFloat(value, 64)
	switch {
	case kind != '-' && (kind < '0' || kind > '9') || err != nil:
		return errDate
	case name == "exp":
		c.expires = at
	default:
		c.begins = max(c.begins, at)
	}
	return nil
}

// readAudience reads aud, which is a list of texts, or one text; one text is a claim too.
func (c *content) readAudience(r *strictjson.Reader, kind byte) error {
	c.audience = []string{}
	one := func() error {
		text, err := r.Text("the name of an audience")
		c.audience = append(c.audience, text)
		return err
	}
	if kind == '[' {
		return r.List(one)
	}
	err := one()
	if err == nil {
		c.claims["aud"] = c.audience[0]
	}
	return err
}

// readValue reads any value. It returns a text, a number as it is written, or a boolean; after
// null, a list or an object, scalar is false.
func readValue(r *strictjson.Reader, depth int) (value string, scalar bool, err error) {
	if depth > maxDepth {
		return "", false, errDeep
	}
	inside := func() error {
		_, _, err := readValue(r, depth+1)
		return err
	}
	switch r.Next() {
	case '{':
		return "", false, r.Object(func(string) error { return inside() })
	case '[':
		return "", false, r.List(inside)
	case '"':
		value, err = r.Text("text")
		return value, true, err
	}
	if word := r.Literal(); word != "" {
		return word, word != "null", nil
	}
	value, err = r.Number()
	return value, true, err
}
