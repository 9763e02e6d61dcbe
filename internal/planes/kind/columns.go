package kind

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/object"
)

// columns are those of Tables; kubectl shows the last ones with -o wide.
var columns = []engine.Column{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Phase", Type: "string", Description: "Whether requests to the plane are served."},
	{Name: "Objects", Type: "integer", Description: "The number of its objects, of all types."},
	{Name: "Bytes", Type: "string", Description: "The total size of its objects as they are stored."},
	{Name: "From", Type: "string", Description: "The plane with whose objects it began, and at which revision."},
	{Name: "Expires", Type: "string", Description: "When the plane is deleted."},
	{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
	{Name: "Memory", Type: "string", Priority: 1, Description: "How much memory of the server belongs to it alone."},
	{Name: "Requests", Type: "integer", Priority: 1, Description: "How many it was sent since the server started."},
	{Name: "URL", Type: "string", Priority: 1, Description: "The address of the plane's API."},
}

// cells are those of a plane.
func cells(obj object.Value) []any {
	meta, status := obj.At("metadata"), obj.At("status")
	row := []any{meta.At("name").Str(), status.At("phase").Str(), nil, nil, "", "", since(meta.At("creationTimestamp")),
		"", nil, status.At("url").Str()}
	if v := status.At("objects"); !v.IsNull() {
		row[2] = v.Int()
	}
	if v := status.At("bytes"); !v.IsNull() {
		row[3] = size(v.Int())
	}
	if v := status.At("memoryBytes"); !v.IsNull() {
		row[7] = size(v.Int())
	}
	if v := status.At("requests"); !v.IsNull() {
		row[8] = v.Int()
	}
	if revision := status.At("origin", "resourceVersion").Str(); revision != "" {
		row[4] = status.At("origin", "name").Str() + "@" + revision
	}
	if at, err := time.Parse(time.RFC3339, status.At("expirationTime").Str()); err == nil {
		row[5] = engine.Age{Since: at, Due: true}
	}
	return row
}

// since is the cell for a time: its age.
func since(v object.Value) any {
	t, err := time.Parse(time.RFC3339, v.Str())
	if err != nil {
		return "<unknown>"
	}
	return engine.Age{Since: t}
}

// size is a number of bytes as a person reads it: 900, 1.5Ki, 64Mi.
func size(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(n, 10)
	}
	const units = "KMGTPE"
	v, unit := float64(n)/(1<<10), 0
	for v >= 1000 {
		v, unit = v/(1<<10), unit+1
	}
	if v < 10 {
		return fmt.Sprintf("%.1f%ci", v, units[unit])
	}
	return fmt.Sprintf("%.0f%ci", v, units[unit])
}
