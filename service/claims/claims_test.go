package claims_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/service/claims"
)

func TestMain(m *testing.M) { leaktest.Main(m, goleak.Find) }

// now is the moment of all tests, in seconds since the Unix epoch.
const now = 1_800_000_000

var b64 = base64.RawURLEncoding

// token returns a token with a signature by sign.
func token(head, payload string, sign func(input string) []byte) string {
	input := b64.EncodeToString([]byte(head)) + "." + b64.EncodeToString([]byte(payload))
	return input + "." + b64.EncodeToString(sign(input))
}

func hs256(secret []byte) func(string) []byte {
	return func(input string) []byte {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(input))
		return h.Sum(nil)
	}
}

func rs256(key *rsa.PrivateKey) func(string) []byte {
	return func(input string) []byte {
		sum := sha256.Sum256([]byte(input))
		signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
		if err != nil {
			panic(err)
		}
		return signature
	}
}

func eddsa(key ed25519.PrivateKey) func(string) []byte {
	return func(input string) []byte { return ed25519.Sign(key, []byte(input)) }
}

func unsigned(string) []byte { return nil }

// keys are those of the issuer, which the JWKS of most tests has, and one that is not
// the issuer's.
var keys = sync.OnceValue(func() (k struct {
	rsa, weak *rsa.PrivateKey
	ec        *ecdsa.PrivateKey
	ed, other ed25519.PrivateKey
},
) {
	k.rsa, _ = rsa.GenerateKey(rand.Reader, 2048)
	k.weak, _ = rsa.GenerateKey(rand.Reader, 1024)
	k.ec, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, k.ed, _ = ed25519.GenerateKey(rand.Reader)
	_, k.other, _ = ed25519.GenerateKey(rand.Reader)
	return k
})

// jwk returns a key as JSON, with further fields.
func jwk(key any, more string) string {
	text := func(b []byte) string { return b64.EncodeToString(b) }
	switch key := key.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf(`{"kty":"RSA","n":%q,"e":"AQAB"%s}`, text(key.N.Bytes()), more)
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			panic(err)
		}
		return fmt.Sprintf(`{"kty":"EC","crv":"P-256","x":%q,"y":%q%s}`, text(point[1:33]), text(point[33:]), more)
	case ed25519.PublicKey:
		return fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":%q%s}`, text(key), more)
	case []byte:
		return fmt.Sprintf(`{"kty":"oct","k":%q%s}`, text(key), more)
	}
	panic(key)
}

func jwks(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

// issuers returns the JWKS of the issuer.
func issuers() string {
	k := keys()
	return jwks(jwk(&k.rsa.PublicKey, `,"kid":"rsa"`), jwk(&k.ec.PublicKey, `,"kid":"ec"`), jwk(k.ed.Public(), `,"kid":"ed"`))
}

// open returns a Source by rules, which name a file with this JWKS, as far as they name
// none.
func open(t testing.TB, jwt rulesfile.JWT, jwks string) *claims.Source {
	if jwt.JWKS == "" {
		jwt.JWKS = filepath.Join(t.TempDir(), "jwks.json")
		disk.Write(t, jwt.JWKS, jwks)
	}
	if jwt.Header == "" {
		jwt.Header = "authorization"
	}
	if jwt.Algorithms == nil {
		jwt.Algorithms = []string{"RS256", "PS256", "ES256", "EdDSA"}
	}
	s := claims.New(claims.Options{})
	s.Use(&jwt)
	return s
}

// ask returns the claims of a token and what has become of it; "" if it was not looked at.
func ask(s *claims.Source, token string, at float64) (claims.Claims, string) {
	before := maps.Collect(s.Counts)
	c, known := s.Of(http.Header{"Authorization": {"Bearer " + token}}, time.UnixMilli(int64(at*1000)))
	outcome := ""
	for o, n := range s.Counts {
		if n != before[o] {
			outcome += o
		}
	}
	if known == (outcome == "no_keys") {
		outcome += fmt.Sprintf(", and known is %v", known)
	}
	return c, outcome
}

// TestVectors are the examples of RFC 7515, A.1 to A.3.
func TestVectors(t *testing.T) {
	const payload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
	s := open(t, rulesfile.JWT{Issuer: "joe", Algorithms: []string{"HS256", "RS256", "ES256"}}, jwks(
		`{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}`,
		`{"kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}`,
		`{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`))
	for _, parts := range [][2]string{
		{"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"},
		{"eyJhbGciOiJSUzI1NiJ9", "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"},
		{"eyJhbGciOiJFUzI1NiJ9", "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"},
	} {
		c, outcome := ask(s, parts[0]+"."+payload+"."+parts[1], 1300819380)
		if want := "map[exp:1300819380 http://example.com/is_root:true iss:joe]"; outcome != "valid" || fmt.Sprint(c) != want {
			t.Errorf("%s: %s, %v; want %s", parts[0], outcome, c, want)
		}
	}
}

// TestAttacks are tokens that a client makes up or changes. None has claims.
func TestAttacks(t *testing.T) {
	k := keys()
	const good, payload = `{"alg":"EdDSA","kid":"ed"}`, `{"sub":"ann"}`
	signed := token(good, payload, eddsa(k.ed))
	part := strings.Split(signed, ".")
	der, err := x509.MarshalPKIXPublicKey(&k.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	header := func(more string) string { return `{"alg":"EdDSA","kid":"ed",` + more + `}` }
	mine := jwk(k.other.Public(), `,"kid":"mine"`)
	for _, c := range []struct{ name, token, want string }{
		{"as it should be", signed, "valid"},
		{"none", token(`{"alg":"none"}`, payload, unsigned), "algorithm"},
		{"None", token(`{"alg":"None","kid":"ed"}`, payload, unsigned), "algorithm"},
		{"no alg", token(`{"kid":"ed"}`, payload, eddsa(k.ed)), "algorithm"},
		{"alg is empty", token(`{"alg":"","kid":"ed"}`, payload, unsigned), "algorithm"},
		{"alg is a list", token(`{"alg":["EdDSA","none"],"kid":"ed"}`, payload, eddsa(k.ed)), "algorithm"},
		{"alg in lower case", token(`{"alg":"eddsa","kid":"ed"}`, payload, eddsa(k.ed)), "algorithm"},
		{"the public key as a secret", token(`{"alg":"HS256","kid":"rsa"}`, payload, hs256(public)), "algorithm"},
		{"an algorithm that is not listed", token(`{"alg":"RS512","kid":"rsa"}`, payload, rs256(k.rsa)), "algorithm"},
		{"the key of another kind", token(`{"alg":"RS256","kid":"ed"}`, payload, rs256(k.rsa)), "unknown_key"},
		{"the signature is taken away", part[0] + "." + part[1] + ".", "signature"},
		{"and its dot", part[0] + "." + part[1], "malformed"},
		{"a fourth part", signed + ".", "malformed"},
		{"five parts, as if encrypted", signed + ".x.y", "malformed"},
		{"JSON in place of the compact form", `{"payload":"` + part[1] + `","protected":"` + part[0] + `","signature":"` + part[2] + `"}`, "malformed"},
		{"empty", "", ""},
		{"dots", "..", "algorithm"},
		{"another payload", part[0] + "." + b64.EncodeToString([]byte(`{"sub":"bob"}`)) + "." + part[2], "signature"},
		{"another header", b64.EncodeToString([]byte(header(`"a":1`))) + "." + part[1] + "." + part[2], "signature"},
		{"somebody else's signature", token(good, payload, eddsa(k.other)), "signature"},
		{"a signature in ASN.1", token(`{"alg":"ES256","kid":"ec"}`, payload, func(input string) []byte {
			sum := sha256.Sum256([]byte(input))
			s, _ := ecdsa.SignASN1(rand.Reader, k.ec, sum[:])
			return s
		}), "signature"},
		{"a signature of zeros", token(`{"alg":"ES256","kid":"ec"}`, payload, func(string) []byte { return make([]byte, 64) }), "signature"},
		{"its own key", token(header(`"jwk":`+mine), payload, eddsa(k.other)), "signature"},
		{"its own key alone", token(`{"alg":"EdDSA","kid":"mine","jwk":`+mine+`}`, payload, eddsa(k.other)), "unknown_key"},
		{"the URL of its own keys", token(header(`"jku":"http://127.0.0.1:1/jwks"`), payload, eddsa(k.other)), "signature"},
		{"the URL of its own certificate", token(header(`"x5u":"http://127.0.0.1:1/x5u"`), payload, eddsa(k.other)), "signature"},
		{"an extension that must be understood", token(header(`"crit":["exp"],"exp":1`), payload, eddsa(k.ed)), "malformed"},
		{"an empty list of those", token(header(`"crit":[]`), payload, eddsa(k.ed)), "malformed"},
		{"a payload that is not encoded", token(header(`"crit":["b64"],"b64":false`), payload, eddsa(k.ed)), "malformed"},
		{"a logout token", token(header(`"typ":"logout+jwt"`), payload, eddsa(k.ed)), "malformed"},
		{"typ is a number", token(header(`"typ":7`), payload, eddsa(k.ed)), "malformed"},
		{"a token in a token", token(header(`"cty":"JWT"`), signed, eddsa(k.ed)), "malformed"},
		{"kid twice", token(header(`"kid":"rsa"`), payload, eddsa(k.ed)), "malformed"},
		{"kid is a number", token(`{"alg":"EdDSA","kid":7}`, payload, eddsa(k.ed)), "malformed"},
		{"kid is a path", token(`{"alg":"EdDSA","kid":"../../../../dev/null"}`, payload, eddsa(k.other)), "unknown_key"},
		{"kid is a query", token(`{"alg":"EdDSA","kid":"x' UNION SELECT 'k"}`, payload, eddsa(k.other)), "unknown_key"},
		{"kid in upper case", token(`{"alg":"EdDSA","kid":"ED"}`, payload, eddsa(k.ed)), "unknown_key"},
		{"a header that is no object", token(`["EdDSA"]`, payload, eddsa(k.ed)), "malformed"},
		{"a header that is null", token(`null`, payload, eddsa(k.ed)), "malformed"},
		{"padding", part[0] + "." + part[1] + "." + part[2] + "==", "malformed"},
		{"standard base64", part[0] + "." + part[1] + "." + strings.Repeat("+/", 43), "malformed"},
		{"a blank", part[0] + ". " + part[1] + "." + part[2], "malformed"},
		{"not ASCII", part[0] + "." + part[1] + ".é", "malformed"},
		{"NUL", part[0] + "\x00." + part[1] + "." + part[2], "malformed"},
		{"no object", token(good, `["sub"]`, eddsa(k.ed)), "malformed"},
		{"nothing", token(good, ``, eddsa(k.ed)), "malformed"},
		{"a claim twice", token(good, `{"sub":"ann","sub":"bob"}`, eddsa(k.ed)), "malformed"},
		{"a claim twice, once escaped", token(good, `{"sub":"ann","\u0073ub":"bob"}`, eddsa(k.ed)), "malformed"},
		{"half a surrogate pair", token(good, `{"sub":"\ud800"}`, eddsa(k.ed)), "malformed"},
		{"not UTF-8", token(good, "{\"sub\":\"\xff\"}", eddsa(k.ed)), "malformed"},
		{"something behind", token(good, `{"sub":"ann"}{}`, eddsa(k.ed)), "malformed"},
		{"nested too deep", token(good, `{"a":`+strings.Repeat("[", 10_000), eddsa(k.ed)), "malformed"},
		{"too long", token(good, `{"sub":"`+strings.Repeat("a", 13_000)+`"}`, eddsa(k.ed)), "too_long"},
	} {
		s := open(t, rulesfile.JWT{}, issuers())
		got, outcome := ask(s, c.token, now)
		if outcome != c.want || (len(got) > 0) != (c.want == "valid") {
			t.Errorf("%s: %q, %v; want %q", c.name, outcome, got, c.want)
		}
		if again, outcome := ask(s, c.token, now); outcome != c.want || fmt.Sprint(again) != fmt.Sprint(got) {
			t.Errorf("%s, once more: %q, %v", c.name, outcome, again)
		}
	}
}

// TestKeys says which keys of a JWKS verify a token by which header.
func TestKeys(t *testing.T) {
	k := keys()
	secret := []byte(strings.Repeat("s", 32))
	ed := func(kid string) string { return token(`{"alg":"EdDSA"`+kid+`}`, `{"sub":"ann"}`, eddsa(k.ed)) }
	mine, others := jwk(k.ed.Public(), `,"kid":"a"`), jwk(k.other.Public(), `,"kid":"a"`)
	private := jwk(k.ed.Public(), fmt.Sprintf(`,"kid":"a","d":%q`, b64.EncodeToString(k.ed.Seed())))
	for _, c := range []struct{ name, jwks, token, want string }{
		{"by kid", jwks(others, jwk(k.ed.Public(), `,"kid":"b"`)), ed(`,"kid":"b"`), "valid"},
		{"two keys of one kid", jwks(others, mine), ed(`,"kid":"a"`), "valid"},
		{"a token without kid", jwks(others, mine), ed(``), "valid"},
		{"a key without kid", jwks(jwk(k.ed.Public(), ``)), ed(`,"kid":"a"`), "valid"},
		{"a token without kid, and too many keys", jwks(others, others, others, others, mine), ed(``), "unknown_key"},
		{"keys of other kinds do not count", jwks(jwk(&k.rsa.PublicKey, ``), jwk(&k.rsa.PublicKey, ``), jwk(&k.ec.PublicKey, ``), jwk(secret, ``), mine), ed(``), "valid"},
		{"for signatures", jwks(jwk(k.ed.Public(), `,"use":"sig","key_ops":["verify"],"alg":"EdDSA"`)), ed(``), "valid"},
		{"for encryption", jwks(jwk(k.ed.Public(), `,"use":"enc"`), others), ed(``), "signature"},
		{"to sign alone", jwks(jwk(k.ed.Public(), `,"key_ops":["sign"]`), others), ed(``), "signature"},
		{"for another algorithm", jwks(jwk(k.ed.Public(), `,"alg":"ES256"`)), ed(``), "unknown_key"},
		{"a private key", jwks(private), ed(``), "valid"},
		{"one that is not understood beside", jwks(`{"kty":"XYZ"}`, `{"kty":"EC","crv":"P-999"}`, `7`, mine), ed(``), "valid"},
		{"none that is understood", jwks(`{"kty":"XYZ"}`), ed(``), "no_keys"},
		{"no keys", jwks(), ed(``), "no_keys"},
		{"no JWKS", `[]`, ed(``), "no_keys"},
		{"too many keys", jwks(strings.Split(strings.Repeat(mine+"\n", 101), "\n")[:101]...), ed(``), "no_keys"},
		{"too large", jwks(mine) + strings.Repeat(" ", 1<<20), ed(``), "no_keys"},
		{"an RSA key of 1024 bits", jwks(jwk(&k.weak.PublicKey, ``), mine), token(`{"alg":"RS256"}`, `{"sub":"ann"}`, rs256(k.weak)), "unknown_key"},
		{"a secret in a file", jwks(jwk(secret, ``)), token(`{"alg":"HS256"}`, `{"sub":"ann"}`, hs256(secret)), "valid"},
		{"RSA-PSS", issuers(), token(`{"alg":"PS256"}`, `{}`, func(input string) []byte {
			sum := sha256.Sum256([]byte(input))
			signature, _ := rsa.SignPSS(rand.Reader, k.rsa, crypto.SHA256, sum[:], nil)
			return signature
		}), "valid"},
		{"a short secret", jwks(jwk(secret[:8], ``)), token(`{"alg":"HS256"}`, `{"sub":"ann"}`, hs256(secret[:8])), "signature"},
		{"an empty secret", jwks(jwk([]byte{}, ``)), token(`{"alg":"HS256"}`, `{"sub":"ann"}`, hs256(nil)), "signature"},
		{"a public key as a secret", jwks(mine), token(`{"alg":"HS256"}`, `{"sub":"ann"}`, hs256(k.ed.Public().(ed25519.PublicKey))), "unknown_key"},
	} {
		s := open(t, rulesfile.JWT{Algorithms: []string{"EdDSA", "RS256", "PS256", "ES256", "HS256"}}, c.jwks)
		if got, outcome := ask(s, c.token, now); outcome != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, outcome, got, c.want)
		}
	}
}

// TestMeant says which tokens are for this service and this moment.
func TestMeant(t *testing.T) {
	all := rulesfile.JWT{Issuer: "https://id.example.com/", Audience: []string{"api", "web"}}
	for _, c := range []struct {
		jwt           rulesfile.JWT
		payload, want string
	}{
		{rulesfile.JWT{}, `{}`, "valid"},
		{rulesfile.JWT{}, `{"iss":"x"}`, "valid"},
		{rulesfile.JWT{}, `{"aud":"api"}`, "audience"}, // RFC 7519, 4.1.3
		{rulesfile.JWT{}, `{"aud":[]}`, "audience"},
		{all, `{"iss":"https://id.example.com/","aud":"web"}`, "valid"},
		{all, `{"iss":"https://id.example.com/","aud":["x","api"]}`, "valid"},
		{all, `{"iss":"https://id.example.com/","aud":["x"]}`, "audience"},
		{all, `{"iss":"https://id.example.com/","aud":[]}`, "audience"},
		{all, `{"iss":"https://id.example.com/","aud":"API"}`, "audience"},
		{all, `{"iss":"https://id.example.com/"}`, "audience"},
		{all, `{"iss":"https://id.example.com","aud":"api"}`, "issuer"},
		{all, `{"aud":"api"}`, "issuer"},
		{all, `{"iss":["https://id.example.com/"],"aud":"api"}`, "malformed"},
		{all, `{"iss":"https://id.example.com/","aud":{"a":"api"}}`, "malformed"},
		{all, `{"iss":"https://id.example.com/","aud":["api",7]}`, "malformed"},
		{rulesfile.JWT{}, `{"exp":1799999941}`, "valid"}, // a minute of skew
		{rulesfile.JWT{}, `{"exp":1799999940}`, "expired"},
		{rulesfile.JWT{}, `{"exp":1799999940.5}`, "valid"},
		{rulesfile.JWT{}, `{"exp":18e8}`, "valid"},
		{rulesfile.JWT{}, `{"exp":0}`, "expired"},
		{rulesfile.JWT{}, `{"exp":-1}`, "expired"},
		{rulesfile.JWT{}, `{"exp":1e300}`, "valid"},
		{rulesfile.JWT{}, `{"exp":1e400}`, "malformed"},
		{rulesfile.JWT{}, `{"exp":"1900000000"}`, "malformed"},
		{rulesfile.JWT{}, `{"exp":null}`, "malformed"},
		{rulesfile.JWT{}, `{"exp":true}`, "malformed"},
		{rulesfile.JWT{}, `{"nbf":1800000060}`, "valid"},
		{rulesfile.JWT{}, `{"nbf":1800000061}`, "early"},
		{rulesfile.JWT{}, `{"nbf":"0"}`, "malformed"},
		{rulesfile.JWT{}, `{"iat":1800000060}`, "valid"},
		{rulesfile.JWT{}, `{"iat":1800000061}`, "early"},
		{rulesfile.JWT{}, `{"iat":0,"nbf":1800000061}`, "early"},
		{rulesfile.JWT{}, `{"iat":1e300}`, "early"},
	} {
		s := open(t, c.jwt, issuers())
		if _, outcome := ask(s, token(`{"alg":"EdDSA","kid":"ed"}`, c.payload, eddsa(keys().ed)), now); outcome != c.want {
			t.Errorf("%s for %v: %s, want %s", c.payload, c.jwt, outcome, c.want)
		}
	}
}

// TestClaims says what attributes tokens give.
func TestClaims(t *testing.T) {
	for _, c := range []struct{ payload, want string }{
		{`{"sub":"ann","plan":"pro"}`, "map[plan:pro sub:ann]"},
		{`{"n":9007199254740993,"big":18446744073709551616,"f":1.50,"e":1E2}`, "map[big:18446744073709551616 e:1E2 f:1.50 n:9007199254740993]"},
		{`{"yes":true,"no":false,"nil":null}`, "map[no:false yes:true]"},
		{`{"list":["a"],"map":{"sub":"bob","sub":"bob"},"sub":"ann"}`, "map[sub:ann]"},
		{`{"":"empty","sub":""}`, "map[:empty sub:]"},
		{`{"https://example.com/plan":"pro","a.b":"c"}`, "map[a.b:c https://example.com/plan:pro]"},
		{`{"sub":"Zo\u00eb \ud83d\ude00","iß":"é"}`, "map[iß:é sub:Zoë 😀]"},
		{`{"Sub":"b","sub":"a"}`, "map[Sub:b sub:a]"},
	} {
		for _, head := range []string{`{"alg":"EdDSA"}`, `{"alg":"EdDSA","typ":"JWT"}`, `{"alg":"EdDSA","typ":"application/AT+JWT"}`} {
			got, outcome := ask(open(t, rulesfile.JWT{}, issuers()), token(head, c.payload, eddsa(keys().ed)), now)
			if outcome != "valid" || fmt.Sprint(map[string]string(got)) != c.want {
				t.Errorf("%s: %s, %v; want %s", c.payload, outcome, got, c.want)
			}
		}
	}
}

// TestHeader says where a token may stand.
func TestHeader(t *testing.T) {
	one := token(`{"alg":"EdDSA"}`, `{"sub":"ann"}`, eddsa(keys().ed))
	for _, c := range []struct {
		name   string
		header http.Header
		want   string
	}{
		{"authorization", http.Header{"Authorization": {"Bearer " + one}}, "ann"},
		{"authorization", http.Header{"Authorization": {"bEARER " + one}}, "ann"},
		{"authorization", http.Header{"Authorization": {one}}, ""},
		{"authorization", http.Header{"Authorization": {"Basic " + one}}, ""},
		{"authorization", http.Header{"Authorization": {"Bearer"}}, ""},
		{"authorization", http.Header{"Authorization": {"Bearer " + one, "Bearer " + one}}, ""},
		{"authorization", http.Header{"X-Token": {one}}, ""},
		{"authorization", http.Header{}, ""},
		{"x-token", http.Header{"X-Token": {one}}, "ann"},
		{"x-token", http.Header{"X-Token": {"Bearer " + one}}, "ann"},
		{"x-token", http.Header{"Authorization": {"Bearer " + one}}, ""},
	} {
		s := open(t, rulesfile.JWT{Header: c.name}, issuers())
		if got, known := s.Of(c.header, time.Unix(now, 0)); got["sub"] != c.want || !known {
			t.Errorf("%s in %v: %v, %v", c.name, c.header, got, known)
		}
	}
	s := claims.New(claims.Options{})
	if got, known := s.Of(http.Header{"Authorization": {"Bearer " + one}}, time.Unix(now, 0)); got != nil || !known {
		t.Errorf("without jwt in the rules: %v, %v", got, known)
	}
}

// TestKept verifies many more tokens than are kept, and one again after its end.
func TestKept(t *testing.T) {
	s := open(t, rulesfile.JWT{Algorithms: []string{"HS256"}}, jwks(jwk([]byte(strings.Repeat("s", 32)), ``)))
	sign := hs256([]byte(strings.Repeat("s", 32)))
	first := token(`{"alg":"HS256"}`, fmt.Sprintf(`{"sub":"a","exp":%d}`, now+10), sign)
	for _, c := range []struct {
		at   float64
		want string
	}{{now, "valid"}, {now + 69, "valid"}, {now + 70, "expired"}, {now + 71, "expired"}, {now, "valid"}} {
		if _, outcome := ask(s, first, c.at); outcome != c.want {
			t.Errorf("at %v: %s, want %s", c.at, outcome, c.want)
		}
	}
	for i := range 11_000 {
		text := fmt.Sprint("user-", i)
		got, outcome := ask(s, token(`{"alg":"HS256"}`, `{"sub":"`+text+`"}`, sign), now)
		if outcome != "valid" || got["sub"] != text {
			t.Fatalf("token %d: %s, %v", i, outcome, got)
		}
	}
	if keys, bytes := claims.Kept(s); keys > 10_000 || bytes > 16<<20 || keys < 9_000 {
		t.Errorf("%d results of %d bytes are kept", keys, bytes)
	}
	for i := range 2000 {
		ask(s, token(`{"alg":"HS256"}`, fmt.Sprintf(`{"n":%d,"a":"%s"}`, i, strings.Repeat("a", 11_000)), sign), now)
	}
	if keys, bytes := claims.Kept(s); bytes > 16<<20 || keys < 1000 {
		t.Errorf("%d results of %d bytes are kept", keys, bytes)
	}
}

// FuzzToken holds the reading of tokens to that of encoding/json, where they verify.
func FuzzToken(f *testing.F) {
	secret := []byte(strings.Repeat("s", 32))
	s := open(f, rulesfile.JWT{Algorithms: []string{"HS256"}}, jwks(jwk(secret, ``)))
	f.Add(`{"alg":"HS256"}`, `{"sub":"ann","n":9007199254740993,"f":-1.5e-3,"b":true,"z":null,"l":[{"a":[]}],"aud":["a"]}`)
	f.Add(`{"alg":"HS256","typ":"JWT"}`, `{"exp":1e300,"nbf":0,"iat":-1,"a":"\ud83d\ude00\n","":""}`)
	f.Fuzz(func(t *testing.T, head, payload string) {
		_, _ = s.Of(http.Header{"Authorization": {"Bearer " + payload}}, time.Unix(now, 0))
		got, outcome := ask(s, token(head, payload, hs256(secret)), now)
		if outcome != "valid" {
			if got != nil {
				t.Fatalf("%s, and claims %v", outcome, got)
			}
			return
		}
		var want map[string]any
		d := json.NewDecoder(strings.NewReader(payload))
		d.UseNumber()
		if err := d.Decode(&want); err != nil || d.More() {
			t.Fatalf("encoding/json does not read %q: %v", payload, err)
		}
		for name, value := range want {
			text, is := got[name]
			switch value.(type) {
			case string, json.Number, bool:
				if !is || text != fmt.Sprint(value) {
					t.Fatalf("%q: %q, want %v", name, text, value)
				}
			default:
				if is {
					t.Fatalf("%q: %q, where there is %T", name, text, value)
				}
			}
		}
		if len(got) > len(want) {
			t.Fatalf("claims %v of %v", got, want)
		}
	})
}
