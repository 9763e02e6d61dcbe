// Package crd compares the validation of CustomResourceDefinitions with upstream's: the strategies of the real API
// server are called with the same definitions, valid ones and mutations of them.
package crd
