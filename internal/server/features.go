package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// gates are the feature gates of the reference that mean something here, with their defaults in 1.37. Where ours
// differs, the reason stands beside it.
var gates = map[string]bool{
	"APIResponseCompression": true,
	"CBORServingAndStorage":  true, // alpha and off in the reference; a client that does not ask for CBOR does not meet it
	"ComponentFlagz":         true,
	"ComponentStatusz":       true,
	"ManagedFieldsOptOut":    true, // alpha and off in KEP-5958; a client that does not ask for it does not meet it
	"ShardedListAndWatch":    false,
	"StrictIPCIDRValidation": true,
	"WatchList":              true,
}

// Features is the state of the feature gates of one server.
type Features map[string]bool

// parseFeatures reads "A=true,B=false" over the defaults. Gates that this server does not know are returned by name: the
// reference has over a hundred, and a command line that names one should start this server, too.
func parseFeatures(text string) (features Features, unknown []string, err error) {
	features = maps.Clone(gates)
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, value, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, nil, fmt.Errorf("--feature-gates: missing bool value for %s", name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return nil, nil, fmt.Errorf("--feature-gates: invalid value of %s=%s, err: %w", name, value, err)
		}
		if _, known := gates[name]; !known {
			unknown = append(unknown, name)
			continue
		}
		features[name] = on
	}
	slices.Sort(unknown)
	return features, unknown, nil
}
