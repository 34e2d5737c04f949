package operate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

// usageMark begins a token for /v1/usage. It is followed by base64 of JSON, a dot, and base64 of an
// HMAC over both.
const usageMark = "stint1."

// A claim says who holds a token: the attributes of a customer, and until when, in Unix seconds.
type claim struct {
	Attributes map[string]string `json:"a"`
	Expires    int64             `json:"e"`
}

// mostToken bounds the length of a token.
const mostToken = 4096

func seal(secret []byte, payload string) string {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("usage\x00" + payload))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// UsageToken returns a token that lets its holder read the usage of one customer until a time. It
// contains the attributes, readable by its holder.
func UsageToken(secret []byte, attrs policy.Map, until time.Time) (string, error) {
	text, err := json.Marshal(claim{attrs, until.Unix()})
	if err != nil {
		return "", err
	}
	payload := usageMark + base64.RawURLEncoding.EncodeToString(text)
	if len(payload) > mostToken-64 {
		return "", errors.New("the attributes are too long for a token")
	}
	return payload + "." + seal(secret, payload), nil
}

var errToken = errors.New("want a token that is good, as Authorization: Bearer TOKEN")

// readUsage returns the attributes in a token that is valid at a time.
func readUsage(secret []byte, token string, now time.Time) (policy.Map, error) {
	dot := strings.LastIndexByte(token, '.')
	if len(token) > mostToken || dot < 0 || !strings.HasPrefix(token, usageMark) || !hmac.Equal([]byte(token[dot+1:]), []byte(seal(secret, token[:dot]))) {
		return nil, errToken
	}
	text, err := base64.RawURLEncoding.DecodeString(token[len(usageMark):dot])
	var c claim
	if err != nil || json.Unmarshal(text, &c) != nil {
		return nil, errToken
	}
	if now.Unix() >= c.Expires {
		return nil, errors.New("the token has expired")
	}
	return c.Attributes, nil
}

// A Usage is the state of a customer, as the customer may see it.
type Usage struct {
	At    time.Time   `json:"at"`
	Rules []UsageRule `json:"rules"`
}

// A UsageRule is the state under one rule.
type UsageRule struct {
	Rule   string       `json:"rule"`
	Denied bool         `json:"denied"`
	Limits []UsageLimit `json:"limits"`
}

// A UsageLimit is the state under one limit. A time of null means never.
type UsageLimit struct {
	Limit        string `json:"limit"`
	Used         *int64 `json:"used"` // null if it is not known
	Remaining    int64  `json:"remaining"`
	Capacity     int64  `json:"capacity"`
	Denied       bool   `json:"denied"`
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
}

// UsageHandler answers GET /v1/usage for tokens that are signed with a secret: it returns the state
// of the customer under each rule whose key is known. It does not show rules in shadow, rules that
// all share, or who set what.
func UsageHandler(source *rules.Source, secret []byte, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			server.WrongMethod(w, "GET, HEAD")
			return
		}
		attrs, err := readUsage(secret, server.Bearer(r), time.Now())
		if err != nil {
			server.Unauthorized(w, r, err.Error())
			return
		}
		all, _, _, err := source.Policy().Standings(r.Context(), attrs)
		if err != nil {
			log.Warn("usage", "error", err)
			server.WriteProblem(w, http.StatusServiceUnavailable, "", "not known now")
			return
		}
		server.WriteJSON(w, http.StatusOK, usageOf(all))
	})
}

func usageOf(all []policy.Standing) *Usage {
	u := &Usage{At: time.Now().UTC(), Rules: []UsageRule{}}
	for i := range all {
		if all[i].Shadow || all[i].Key == "" {
			continue
		}
		one := UsageRule{Rule: all[i].Rule, Limits: []UsageLimit{}}
		for k := range all[i].Limits {
			l := limitOf(&all[i].Limits[k])
			one.Denied = one.Denied || l.Denied
			one.Limits = append(one.Limits, UsageLimit{l.Limit, l.Used, l.Remaining, l.Capacity, l.Denied, l.RetryAfterMS, l.ResetAfterMS})
		}
		u.Rules = append(u.Rules, one)
	}
	return u
}
