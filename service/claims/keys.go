package claims

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

const (
	// maxJWKS is the greatest size of a JWKS in bytes, mostKeys the most keys in it.
	maxJWKS  = 1 << 20
	mostKeys = 100
	// mostTried is how many keys a token is tried with, if it has no kid, or several keys have its
	// kid.
	mostTried = 4
	// leastRSA is the size of the shortest RSA key, in bits (RFC 7518, 3.3).
	leastRSA = 2048
)

// A keySet is the keys of a JWKS that verify signatures. It does not change.
type keySet struct {
	text []byte // as it was received
	keys []jose.JSONWebKey
	kept kept
}

// readKeys reads a JWKS. It skips keys that cannot verify here: those of unknown kinds, for
// encryption, or too short, and shared secrets unless they are allowed. It is an error if no key is
// left.
func readKeys(text []byte, secrets bool) (*keySet, error) {
	if len(text) > maxJWKS {
		return nil, fmt.Errorf("a JWKS of more than %d bytes", maxJWKS)
	}
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("no JWKS, which is JSON with the field keys: %w", err)
	}
	if len(all.Keys) > mostKeys {
		return nil, fmt.Errorf("%d keys: at most %d", len(all.Keys), mostKeys)
	}
	set := &keySet{text: text}
	for _, one := range all.Keys {
		if key, ok := readKey(one, secrets); ok {
			set.keys = append(set.keys, key)
		}
	}
	if len(set.keys) == 0 {
		return nil, fmt.Errorf("none of %d keys can verify a signature", len(all.Keys))
	}
	return set, nil
}

// readKey reads a key without its private part, and reports whether it can verify.
func readKey(text []byte, secrets bool) (key jose.JSONWebKey, ok bool) {
	var uses struct {
		Operations []string `json:"key_ops"`
	}
	if json.Unmarshal(text, &uses) != nil || uses.Operations != nil && !slices.Contains(uses.Operations, "verify") {
		return key, false
	}
	if key.UnmarshalJSON(text) != nil || key.Use != "" && key.Use != "sig" {
		return key, false
	}
	if _, secret := key.Key.([]byte); secret {
		return key, secrets
	}
	key = key.Public()
	if long, ok := key.Key.(*rsa.PublicKey); ok && long.N.BitLen() < leastRSA {
		return key, false
	}
	return key, key.Valid()
}

// serves reports whether a key may verify by an algorithm: the kind of the key fits, and the key
// names no other algorithm.
func serves(key *jose.JSONWebKey, by string) bool {
	if key.Algorithm != "" && key.Algorithm != by {
		return false
	}
	switch of := key.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(by, "RS") || strings.HasPrefix(by, "PS")
	case *ecdsa.PublicKey:
		return by == map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[of.Params().BitSize]
	case ed25519.PublicKey:
		return by == "EdDSA"
	case []byte:
		return strings.HasPrefix(by, "HS")
	}
	return false
}

// check returns the payload of a token if its signature verifies.
func (s *keySet) check(token string, algorithms []jose.SignatureAlgorithm) (payload []byte, o outcome) {
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if _, other := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); other {
		return nil, algorithm
	}
	if err != nil || !understood(&signed.Signatures[0].Protected) {
		return nil, malformed
	}
	head := &signed.Signatures[0].Protected
	var fitting []*jose.JSONWebKey
	for i := range s.keys {
		key := &s.keys[i]
		if serves(key, head.Algorithm) && (head.KeyID == "" || key.KeyID == "" || key.KeyID == head.KeyID) {
			fitting = append(fitting, key)
		}
	}
	if len(fitting) == 0 || len(fitting) > mostTried {
		return nil, unknownKey
	}
	for _, key := range fitting {
		if payload, err = signed.Verify(key); err == nil {
			return payload, valid
		}
	}
	return nil, signature
}

// understood reports whether a header asks for nothing that is unknown here: an extension that must
// be understood, an encoding that a JWT may not have (RFC 7797, 7), or a kind of token that is not
// for access (RFC 8725, 3.11).
func understood(head *jose.Header) bool {
	_, critical := head.ExtraHeaders["crit"]
	_, b64 := head.ExtraHeaders["b64"]
	typ, typed := head.ExtraHeaders[jose.HeaderType]
	text, _ := typ.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return !critical && !b64 && (!typed || text == "jwt" || text == "at+jwt")
}
