// Package etcdform converts between Plinth's stored objects and the keys and values of Kubernetes in etcd (STORE-3): a
// Pod is under "/pods" and "NAMESPACE/NAME" here, and under pods/NAMESPACE/NAME there; it is canonical JSON here, and
// protobuf in an envelope there. It knows kinds and their schemas, but no etcd.
//
// # Glossary
//
//   - path: an etcd key below the prefix (--etcd-prefix), without a slash in front.
//   - resource path: the part of a path that the objects of a kind share: "pods", "services/specs",
//     "stable.example.com/crontabs".
//   - value: the bytes of an etcd key, as the reference writes them before it encrypts them.
//   - form: that of a kind's values ([values]): protobuf, JSON in the order of Go's fields, or JSON in the order of
//     names.
//   - exact: a value is exact if it is what Encode writes for the object in it.
//
// # Values that are written
//
// Encode writes the bytes that the reference would write for the same object. There they decide whether a write changes
// anything: an object whose value has other bytes is written by its next update, even if that changes nothing. The
// exceptions:
//
//   - Untyped content (RawExtension: the data of ControllerRevisions, the parameters of devices) is written there as
//     the client sent it, with its white space and its order of members; here members are sorted (package object).
//   - An object whose fields are removed there after their defaults were set is stored without them by its create, and
//     with them by its next write: the status.phase of PersistentVolumeClaims. Here it is stored as it is read.
//   - With --storage-media-type=application/json, an empty list of a field without omitempty is written as [] there if
//     a client sent it, and as null here. With protobuf, the default, there is no difference.
//
// # Values that are read
//
// Decode reads what the reference reads: of built-in types JSON, YAML, protobuf, and base64 of any of them; of custom
// ones JSON and CBOR; with unknown members, and in any version that the kind has. The defaults of its version are set,
// as they are by a read in the reference. An object in a version that is not the one in which its kind is stored keeps
// it, and its stamp is 0: the engine converts it when it is read. Versions that this server does not have are read if
// they have the shape of one that it has ([older]).
//
// Not read, although the reference still reads them, are versions of other shapes (unread in the tests of
// conformance/oracle/etcdform), and objects without a UID. No release since 1.30 has stored such a version.
//
// # Definitions
//
// A CustomResourceDefinition is stored as apiextensions.k8s.io/v1beta1 there, which has another shape than v1
// (definition.go).
package etcdform
