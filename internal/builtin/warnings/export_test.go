package warnings

// Keys are the groups and kinds that have warnings.
func Keys() (keys [][2]string) {
	for key := range kinds {
		keys = append(keys, key)
	}
	return keys
}
