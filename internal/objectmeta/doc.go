// Package objectmeta validates metadata (VAL-1): that of objects, and the names, labels and annotations that are in
// other places of an object. Its messages are those of the reference.
//
// Values have been decoded: a member has the JSON type of its schema, or is missing or null.
package objectmeta
