package kubectl_test

import "testing"

// The session of docs/encryption.md works as written: a Secret is encrypted, and the key replaced, with the real
// kubectl.
//
// SPEC: STORE-5
func TestEncryptionSession(t *testing.T) {
	walk(t, "docs/encryption.md", sessionDir(t), []chapter{{
		title: "Encrypt Secrets, and replace the key", command: "kubectl ",
		shown:  []string{"is ready at", "secret/db created", "secret/db replaced", "correct-horse"},
		failed: []string{`1 grep -r "$PASSWORD" data/store`},
	}})
}
