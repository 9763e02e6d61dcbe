// Package apiregistration compares the defaults and the validation of APIServices with those of upstream, which are in
// a module of their own.
package apiregistration
