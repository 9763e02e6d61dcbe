// Package encryption is the encryption at rest of Kubernetes: it turns the bytes of an object into those that a store
// keeps, and back. The stored values are those of k8s.io/apiserver (pkg/storage/value/encrypt), so that either server
// reads what the other one has written.
//
// Its nouns:
//
//   - a Configuration is an EncryptionConfiguration: groups of resources, each with a list of providers.
//   - a provider encrypts and decrypts: identity (no encryption), aescbc, aesgcm, secretbox, or a plugin of a key
//     management service (KMS). The first one of a list encrypts, and all of them decrypt.
//   - a stored value begins with the prefix of its provider, k8s:enc:aescbc:v1:, and the name of the key and a colon.
//   - a value is stale if another provider or key than the first one has encrypted it. A write of the object that
//     changes nothing is carried out nevertheless, so that old keys can be replaced.
//   - a Transformer does both directions for one resource. Transformers are those of a configuration.
//   - a Seal is how a Transformer encrypts at one moment. To get it may fail, to use it does not.
//   - the data encryption key (DEK) of a plugin encrypts values, and is stored with each of them, encrypted by the
//     plugin. So a plugin is called when a key is new to the server, and not for each value.
//
// Values are bound to their keys in the store, by aesgcm and plugins alone: one that was copied to another key does
// not decrypt.
//
// Caveats. aesgcm with a static key draws random nonces, so that the key has to be replaced after about 2³² values;
// plugins derive a key for each value. aescbc does not detect changes of the stored bytes. Secrets of keys are in
// memory as long as the server runs.
package encryption
