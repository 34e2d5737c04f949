package redisstore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Credentials are what a connection logs in with: tokens, say, that are good for
// some minutes.
type Credentials struct {
	// Username is an ACL user's; "" is the default user.
	Username string
	// Password may be a token.
	Password string
	// Until, if it is not zero, is when connections that are open log in anew.
	Until time.Time
}

// fileEvery is how often a file with a password is read again for connections that
// are open. New ones read it at once.
const fileEvery = time.Minute

// askedFor returns credentials as rueidis asks for them. It has no context of its
// own, so that of the store bounds a call.
func askedFor(get func(ctx context.Context) (Credentials, error)) func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
		defer cancel()
		c, err := get(ctx)
		if err != nil {
			return rueidis.AuthCredentials{}, fmt.Errorf("redisstore: credentials: %w", err)
		}
		return rueidis.AuthCredentials{Username: c.Username, Password: c.Password, RefreshAfter: c.Until}, nil
	}
}

// readPassword returns what reads a password from a file: its first line.
func readPassword(user, file string) func(context.Context) (Credentials, error) {
	return func(context.Context) (Credentials, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return Credentials{}, err
		}
		line, _, _ := strings.Cut(string(text), "\n")
		line = strings.TrimRight(line, "\r")
		if line == "" {
			return Credentials{}, fmt.Errorf("%s has no password in its first line", file)
		}
		return Credentials{Username: user, Password: line, Until: time.Now().Add(fileEvery)}, nil
	}
}
