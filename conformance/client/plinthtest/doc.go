// Package plinthtest uses the package of the same name as other projects do: with client-go, with a manager and
// controllers of controller-runtime, with kubectl, and with the definitions of real projects.
package plinthtest
