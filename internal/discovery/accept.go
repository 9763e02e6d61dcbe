package discovery

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"plinth/internal/apierr"
)

const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// clause is one media range of an Accept header.
type clause struct {
	kind, sub string // "application", "json"; either may be "*"
	params    map[string]string
	quality   float64
}

// parseAccept takes an Accept header apart, the most wanted clause first: by quality, and of equals a full type before
// one with a wildcard. As in the reference a quality of 0 is the least wanted one, not a refusal, and clauses that are
// no media range are passed over.
func parseAccept(header string) []clause {
	if header == "" {
		header = "*/*"
	}
	var clauses []clause
	for _, part := range strings.Split(header, ",") {
		fields := strings.Split(part, ";")
		kind, sub, ok := strings.Cut(strings.TrimSpace(fields[0]), "/")
		if !ok && kind == "*" {
			sub, ok = "*", true
		}
		if !ok || kind == "" || sub == "" {
			continue
		}
		c := clause{kind: strings.ToLower(kind), sub: strings.ToLower(sub), quality: 1}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if key == "q" {
				if q, err := strconv.ParseFloat(value, 64); err == nil && q >= 0 && q <= 1 {
					c.quality = q
				}
				continue
			}
			if c.params == nil {
				c.params = map[string]string{}
			}
			c.params[key] = value
		}
		clauses = append(clauses, c)
	}
	sort.SliceStable(clauses, func(i, j int) bool {
		a, b := clauses[i], clauses[j]
		if a.quality != b.quality {
			return a.quality > b.quality
		}
		return a.wildcards() < b.wildcards()
	})
	return clauses
}

func (c clause) wildcards() int {
	switch {
	case c.kind == "*":
		return 2
	case c.sub == "*":
		return 1
	}
	return 0
}

// matches says whether the clause asks for this media type, parameters aside.
func (c clause) matches(mediaType string) bool {
	kind, sub, _ := strings.Cut(mediaType, "/")
	return (c.kind == kind || c.kind == "*") && (c.sub == sub || c.sub == "*")
}

// representations are the media types of the discovery documents.
var representations = []string{mediaJSON, mediaYAML, mediaProtobuf}

// aggregatedParams are the parameters with which a client asks for aggregated discovery.
const aggregatedParams = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// negotiate picks the representation of a discovery document; where aggregated discovery is to be had, it says whether
// that is what the client wants.
func negotiate(accept string, aggregated bool) (mediaType string, asked bool, err error) {
	for _, c := range parseAccept(accept) {
		transform := c.params["as"] != "" || c.params["g"] != "" || c.params["v"] != ""
		if transform && !(aggregated && c.params["g"] == "apidiscovery.k8s.io" && c.params["v"] == "v2" && c.params["as"] == "APIGroupDiscoveryList") {
			continue
		}
		for _, m := range representations {
			if c.matches(m) {
				return m, transform, nil
			}
		}
	}
	return "", false, apierr.NewNotAcceptable(representations)
}

// literal refuses a header that names none of these media types as it is written and does not say */* either. Some
// paths of the reference look at the header in this way before they negotiate, and have another message for it.
func literal(accept string, mediaTypes ...string) error {
	if accept == "" {
		return nil
	}
	for _, part := range strings.Split(accept, ",") {
		name, _, _ := strings.Cut(part, ";")
		name = strings.TrimSpace(name)
		if name == "*/*" || slices.Contains(mediaTypes, name) {
			return nil
		}
	}
	return &apierr.Error{
		Code: 406, Reason: apierr.NotAcceptable, Details: &apierr.Details{},
		Message: "406: Not Acceptable\n\nAvailable representations: " + strings.Join(mediaTypes, ", "),
	}
}
