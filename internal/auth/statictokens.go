package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"plinth/internal/access"
)

// StaticTokens are users, such as those of --token-auth-file, by the SHA-256 of their tokens. With hashes as keys, the
// time of a lookup does not reveal how many bytes of a guessed token are right.
type StaticTokens map[[sha256.Size]byte]access.User

// StaticToken returns the StaticTokens of one token.
func StaticToken(token string, user access.User) StaticTokens {
	return StaticTokens{sha256.Sum256([]byte(token)): user}
}

// TokenFile are the StaticTokens of a file, which may change. The zero value has none.
type TokenFile struct{ current atomic.Pointer[StaticTokens] }

// Take replaces the tokens by those of a text, unless that is an error. none says that the text has none.
func (f *TokenFile) Take(text []byte) (none bool, err error) {
	tokens := StaticTokens{}
	if err := tokens.read(bytes.NewReader(text)); err != nil {
		return false, err
	}
	f.current.Store(&tokens)
	return len(tokens) == 0, nil
}

// Token implements Tokens.
func (f *TokenFile) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	tokens := f.current.Load()
	if tokens == nil {
		return nil, nil
	}
	return tokens.Token(ctx, token, audiences)
}

// Token implements Tokens.
func (s StaticTokens) Token(_ context.Context, token string, _ []string) (*access.Identity, error) {
	user, ok := s[sha256.Sum256([]byte(token))]
	if !ok {
		return nil, nil
	}
	return &access.Identity{User: user}, nil
}

// read reads the format of --token-auth-file: lines of token,user,uid[,"group,group"]. Errors name the line.
func (s StaticTokens) read(in io.Reader) error {
	lines := csv.NewReader(in)
	lines.FieldsPerRecord = -1
	lines.TrimLeadingSpace = true
	for {
		record, err := lines.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := lines.FieldPos(0)
		if len(record) < 3 {
			return fmt.Errorf("line %d has %d columns, but needs a token, a user name and a user UID", line, len(record))
		}
		if record[0] == "" {
			return fmt.Errorf("line %d has an empty token", line)
		}
		user := access.User{Name: record[1], UID: record[2]}
		if len(record) > 3 && record[3] != "" {
			user.Groups = strings.Split(record[3], ",")
		}
		user.Groups = append(user.Groups, access.Authenticated)
		s[sha256.Sum256([]byte(record[0]))] = user
	}
}
