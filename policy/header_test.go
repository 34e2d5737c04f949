package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-dev/stint/policy"
)

// TestHeaderValues: a request with a header value that servers read in different ways is at
// fault, from any caller, but only where a rule reads the header.
func TestHeaderValues(t *testing.T) {
	p := newPolicy(t, `{"name": "a", "key": ["header.x-api-key"], "limits": "3/h"}`,
		`{"name": "b", "key": ["header.authorization"], "limits": "3/h", "on_missing": "skip"}`)
	for value, fault := range map[string]bool{
		"": false, "k": false, "k 1": false, "a,b;c=\"d\"\\": false,
		"k ": true, " k": true, " ": true, "k\t": true, "a\tb": true, "k\u00a0": true, "k\xa0": true, "k\u0085": true, "ü": true, "k\x00": true, "k\r": true, "k\x7f": true,
	} {
		var r policy.Result
		err := p.Decide(t.Context(), policy.Map{"header.x-api-key": value}, 1, &r)
		if errors.Is(err, policy.ErrRequest) != fault || fault && !strings.Contains(err.Error(), "header.x-api-key") {
			t.Errorf("%q: %v", value, err)
		}
		if err := p.Decide(t.Context(), policy.Map{"header.x-other": value}, 1, &r); errors.Is(err, policy.ErrRequest) {
			t.Errorf("%q in a header that no rule reads: %v", value, err)
		}
	}
}

// TestAuthorization: a login has one key, however it is written.
func TestAuthorization(t *testing.T) {
	for _, test := range []struct {
		values []string
		blocks string
	}{
		{[]string{"Basic dTpw", "basic dTpw", "BASIC dTpw", "bAsIc dTpw", "Basic  dTpw", "Basic dTpw ", "Basic dT-pw", "Basic dTpw=", "Basic\tdTpw", "Basic dT pw", "Basic dTpw,x",
			"Basic dTpwAGp1bms=", "Basic dTpwAGp1bmsy", "Basic dTpwf3g=", "Basic CnU6cA==", "Basic,dTpw", "basic:dTpw", "Basic=dTpw", "Basics dTpw", "Basic\x00dTpw"}, "basic dTpw"},
		{[]string{"Basic YTpiYw==", "Basic YTpiYw", "Basic YTpiYx==", "Basic YTpiYw=", "Basic YTpiYw==="}, "BASIC YTpi*"},
		{[]string{"Bearer t0", "bearer t0", "BEARER t0", "Bearer   t0", "Bearer t0 junk", "Bearer t0,junk", "Bearer t0\u00a0", "Bearer,t0", "Bearer: t0", "BEARER=t0", "bearert0"}, "Bearer t0"},
		{[]string{"Basic dXNlcjo=", "Basic dXNlcg==", "Basic", "Basic AA=="}, "Basic dXNlc*"}, // without a password; without a colon
		{[]string{"Token abc", "Token  abc"}, "Token abc"},
	} {
		limited := newPolicy(t, `{"name": "a", "key": ["header.authorization"], "limits": "3/h"}`)
		blocked := newPolicy(t, `{"name": "a", "match": {"header.authorization": "`+test.blocks+`"}, "block": true}`)
		passed := 0
		for range 4 {
			for _, value := range test.values {
				var r policy.Result
				err := limited.Decide(t.Context(), policy.Map{"header.authorization": value}, 1, &r)
				if err == nil && r.Decision.Allowed {
					passed++
				}
				if err != nil && !errors.Is(err, policy.ErrRequest) {
					t.Fatal(err)
				}
				if err := blocked.Decide(t.Context(), policy.Map{"header.authorization": value}, 1, &r); err == nil && r.Decision.Allowed {
					t.Errorf("%q passes %q", value, test.blocks)
				}
			}
		}
		if passed != 3 {
			t.Errorf("%q: %d passed", test.values, passed)
		}
	}
}
