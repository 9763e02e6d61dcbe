package defaults

// Keys are the groups, versions and kinds that have defaults.
func Keys() (keys [][3]string) {
	for key := range byKind {
		keys = append(keys, [3]string{key.group, key.version, key.kind})
	}
	for key := range timedByKind {
		keys = append(keys, [3]string{key.group, key.version, key.kind})
	}
	return keys
}
