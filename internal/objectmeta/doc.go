// Package objectmeta validates what every object has: metadata (VAL-1), and with it the names, labels and annotations
// that rules of kinds look at, too. Its messages are those of the reference.
//
// Values have been decoded before: a member has the JSON type that its schema demands, or is missing or null.
package objectmeta
