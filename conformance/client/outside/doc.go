// Package outside tests the module plinthtest/outside in other modules: with its own tests, and with a controller on
// the Kubernetes libraries of 2024 and of 2026, whose versions stay what their go.mod says.
package outside
