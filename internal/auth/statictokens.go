package auth

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strings"

	"plinth/internal/access"
)

// StaticTokens are users, such as those of --token-auth-file, by the SHA-256 of their tokens. With hashes as keys, the
// time of a lookup does not reveal how many bytes of a guessed token are right.
type StaticTokens map[[sha256.Size]byte]access.User

// ReadTokens reads a file in the format of --token-auth-file: lines of token,user,uid[,"group,group"]. Errors name the
// line.
func ReadTokens(name string) (StaticTokens, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	tokens := StaticTokens{}
	if err := tokens.read(file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return tokens, nil
}

// StaticToken returns the StaticTokens of one token.
func StaticToken(token string, user access.User) StaticTokens {
	return StaticTokens{sha256.Sum256([]byte(token)): user}
}

// Token implements Tokens.
func (s StaticTokens) Token(_ context.Context, token string, _ []string) (*access.Identity, error) {
	user, ok := s[sha256.Sum256([]byte(token))]
	if !ok {
		return nil, nil
	}
	return &access.Identity{User: user}, nil
}

// read reads lines of token,user,uid[,"group,group"].
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
