// Package columns compares the Table columns and the selectable fields of custom objects with upstream's code, on
// generated paths and objects.
package columns
