// Package discovery compares documents of discovery that are made of others with what the reference's code makes of
// them.
package discovery
