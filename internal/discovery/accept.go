package discovery

import (
	"plinth/internal/apierr"
	"plinth/internal/wire"
)

// The media types of documents.
var (
	mediaJSON     = wire.JSON.String()
	mediaYAML     = wire.YAML.String()
	mediaProtobuf = wire.Protobuf.String()
	mediaCBOR     = wire.CBOR.String()
)

// aggregatedParams are the parameters with which a client asks for aggregated discovery.
const aggregatedParams = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// negotiate picks the representation of a discovery document; where aggregated discovery is to be had, it says whether
// that is what the client wants.
func (d *Documents) negotiate(accept string, aggregated bool) (mediaType string, asked bool, err error) {
	for _, c := range wire.ParseAccept(accept).Clauses() {
		as, group, version := c.Param("as"), c.Param("g"), c.Param("v")
		transform := as != "" || group != "" || version != ""
		if transform && !(aggregated && group == "apidiscovery.k8s.io" && version == "v2" && as == "APIGroupDiscoveryList") {
			continue
		}
		for _, m := range d.media.object {
			if c.Names(m) {
				return m, transform, nil
			}
		}
	}
	return "", false, apierr.NewNotAcceptable(d.media.object)
}

// literal refuses a header that names none of these media types as it is written and does not say */* either. Some
// paths of the reference look at the header in this way before they negotiate, and have another message for it.
func literal(accept string, mediaTypes ...string) error {
	if wire.Literal(accept, mediaTypes...) {
		return nil
	}
	return wire.NotLiteral(mediaTypes...)
}
