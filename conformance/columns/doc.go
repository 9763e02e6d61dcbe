// Package columns holds what Plinth shows of custom objects, and lets them be selected by, against upstream's code for
// it: generated paths and objects go through both.
package columns
