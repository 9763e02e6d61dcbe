// Package releases holds the promises of docs/upgrading.md: a release opens the data of an earlier one, and an earlier
// one that of a later one with the same format.
package releases
