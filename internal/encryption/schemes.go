package encryption

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"

	"golang.org/x/crypto/nacl/secretbox"
)

// This file has the providers with static keys. crypto/rand does not return errors.

var errShort = errors.New("the stored data was shorter than the required size")

// gcm is AES-GCM: a random nonce of 12 bytes, then the value and its tag. The key in the store is authenticated.
type gcm struct {
	aead cipher.AEAD
	by   uint32
}

func newGCM(key []byte, by uint32) (*gcm, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &gcm{aead, by}, nil
}

func (g *gcm) id() (uint32, bool) { return g.by, true }

func (g *gcm) seal(context.Context) (*Seal, error) { return &Seal{ID: g.by, append: g.append}, nil }

func (g *gcm) append(dst []byte, key string, plain []byte) []byte {
	var nonce [12]byte
	rand.Read(nonce[:])
	return g.aead.Seal(append(dst, nonce[:]...), nonce[:], plain, []byte(key))
}

func (g *gcm) open(_ context.Context, key string, data []byte) (Opened, error) {
	n := g.aead.NonceSize()
	if len(data) < n {
		return Opened{}, errShort
	}
	plain, err := g.aead.Open(nil, data[:n], data[n:], []byte(key))
	return Opened{Plain: plain, By: g.by}, err
}

// cbc is AES-CBC: a random vector of 16 bytes, then the value with the padding of PKCS #7. It does not notice every
// change of the stored bytes.
type cbc struct {
	block cipher.Block
	by    uint32
}

func (c *cbc) id() (uint32, bool) { return c.by, true }

func (c *cbc) seal(context.Context) (*Seal, error) { return &Seal{ID: c.by, append: c.append}, nil }

func (c *cbc) append(dst []byte, _ string, plain []byte) []byte {
	padding := aes.BlockSize - len(plain)%aes.BlockSize
	var vector [aes.BlockSize]byte
	rand.Read(vector[:])
	dst = append(dst, vector[:]...)
	begin := len(dst)
	dst = append(append(dst, plain...), bytes.Repeat([]byte{byte(padding)}, padding)...)
	cipher.NewCBCEncrypter(c.block, vector[:]).CryptBlocks(dst[begin:], dst[begin:])
	return dst
}

var (
	errBlockSize = errors.New("the stored data is not a multiple of the block size")
	errNoPadding = errors.New("invalid PKCS7 data (empty or not padded)")
	errPadding   = errors.New("invalid padding on input")
)

func (c *cbc) open(_ context.Context, _ string, data []byte) (Opened, error) {
	if len(data) < aes.BlockSize {
		return Opened{}, errShort
	}
	vector, data := data[:aes.BlockSize], data[aes.BlockSize:]
	switch {
	case len(data)%aes.BlockSize != 0:
		return Opened{}, errBlockSize
	case len(data) == 0:
		return Opened{}, errNoPadding
	}
	plain := make([]byte, len(data))
	cipher.NewCBCDecrypter(c.block, vector).CryptBlocks(plain, data)
	padding := int(plain[len(plain)-1])
	if padding == 0 || padding > len(plain) {
		return Opened{}, errNoPadding
	}
	plain, rest := plain[:len(plain)-padding], plain[len(plain)-padding:]
	if len(bytes.TrimRight(rest, string(rest[len(rest)-1:]))) > 0 {
		return Opened{}, errPadding
	}
	return Opened{Plain: plain, By: c.by}, nil
}

// box is XSalsa20 and Poly1305: a random nonce of 24 bytes, then the tag and the value.
type box struct {
	key [32]byte
	by  uint32
}

func (b *box) id() (uint32, bool) { return b.by, true }

func (b *box) seal(context.Context) (*Seal, error) { return &Seal{ID: b.by, append: b.append}, nil }

func (b *box) append(dst []byte, _ string, plain []byte) []byte {
	var nonce [24]byte
	rand.Read(nonce[:])
	return secretbox.Seal(append(dst, nonce[:]...), plain, &nonce, &b.key)
}

func (b *box) open(_ context.Context, _ string, data []byte) (Opened, error) {
	var nonce [24]byte
	if len(data) < len(nonce)+secretbox.Overhead {
		return Opened{}, errShort
	}
	data = data[copy(nonce[:], data):]
	plain, ok := secretbox.Open(nil, data, &nonce, &b.key)
	if !ok { // as the reference has it
		return Opened{}, errors.New("output array was not large enough for encryption")
	}
	return Opened{Plain: plain, By: b.by}, nil
}

// Prefixes of the values of providers with static keys.
const (
	cbcPrefix = "k8s:enc:aescbc:v1:"
	gcmPrefix = "k8s:enc:aesgcm:v1:"
	boxPrefix = "k8s:enc:secretbox:v1:"
)

var (
	errNoAESKey = errors.New("no matching key was found for the provided AES transformer")
	errNoBoxKey = errors.New("no matching key was found for the provided Secretbox transformer")
)

// newKeys makes a provider of its keys, which were validated.
func newKeys(keys *Keys, prefix string, unknown error, from func(secret []byte, by uint32) (scheme, error)) (
	prefixed, error) {
	l := &list{unknown: unknown}
	for _, key := range keys.Keys {
		secret, err := base64.StdEncoding.DecodeString(key.Secret)
		if err != nil {
			return prefixed{}, fmt.Errorf("could not obtain secret for named key %s: %w", key.Name, err)
		}
		c, err := from(secret, idOf(prefix, key.Name, key.Secret))
		if err != nil {
			return prefixed{}, fmt.Errorf("error while creating cipher for named key %s: %w", key.Name, err)
		}
		l.all = append(l.all, prefixed{key.Name + ":", c})
	}
	return prefixed{prefix, l}, nil
}
