package columns

import (
	"plinth/object"
)

// storagemigration.k8s.io
var (
	StorageVersionMigrations = of(
		str("Name", name.Description, name.cell),
		str("Resource", "GroupResource to migrate", func(obj object.Value) any {
			resource := obj.At("spec", "resource", "resource").Str()
			if group := obj.At("spec", "resource", "group").Str(); group != "" {
				resource += "." + group
			}
			return resource
		}),
		str("Status", "Status of the migration", func(obj object.Value) any {
			status := "Unknown"
			for _, c := range obj.At("status", "conditions").Items() {
				if t := c.At("type").Str(); isTrue(c) && (t == "Running" || t == "Failed" || t == "Succeeded") {
					status = t
				}
			}
			return status
		}),
	)
)
