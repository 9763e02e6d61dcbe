// Package endpoints compares what package internal/endpoints makes of the endpoints of the Service kubernetes with what
// the reference's reconcilers make of them, on random objects.
package endpoints
