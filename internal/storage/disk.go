package storage

import (
	"context"
	"fmt"

	"plinth/internal/httpapi"
)

// LeastFree is how much room the disk of the store needs: a segment of its log and a new manifest fit into it.
const LeastFree = 16 << 20

// diskCheck fails while the disk of the store has no room for further writes. The server still answers reads, so the
// check is not among those of /livez: a restart does not help. Who sends reads alone leaves it out:
// /readyz?exclude=disk.
func diskCheck(dir string, free func(dir string) (bytes uint64, known bool)) httpapi.Check {
	return httpapi.Check{Name: "disk", NotLive: true, Run: func(context.Context) error {
		if left, known := free(dir); known && left < LeastFree {
			return fmt.Errorf("the disk of %s is full: %d KiB are free, writes need %d KiB", dir, left>>10, LeastFree>>10)
		}
		return nil
	}}
}
