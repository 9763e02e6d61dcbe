package columns

import (
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"

	"plinth/object"
)

// internal.apiserver.k8s.io
var (
	StorageVersions = of(name,
		str("CommonEncodingVersion", doc[apiserverinternalv1alpha1.StorageVersionStatus]("commonEncodingVersion"),
			present("status", "commonEncodingVersion")),
		str("StorageVersions", doc[apiserverinternalv1alpha1.StorageVersionStatus]("storageVersions"),
			func(obj object.Value) any {
				servers := obj.At("status", "storageVersions").Items()
				var shown []string
				for _, s := range servers[:min(len(servers), mostShown)] {
					shown = append(shown, s.At("apiServerID").Str()+"="+s.At("encodingVersion").Str())
				}
				return or(more(shown, mostShown, len(servers)), unset)
			}),
		age,
	)
)
