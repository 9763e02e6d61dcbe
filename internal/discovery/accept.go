package discovery

import (
	"plinth/internal/apierr"
	"plinth/internal/wire"
)

// The media types of documents, as text.
var (
	mediaJSON     = wire.JSON.String()
	mediaYAML     = wire.YAML.String()
	mediaProtobuf = wire.Protobuf.String()
	mediaCBOR     = wire.CBOR.String()
)

// aggregatedParams are the parameters with which a client requests aggregated discovery.
const aggregatedParams = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// negotiate selects the media type of a discovery document. aggregated says whether the path has an aggregated form;
// asked, whether the client prefers that one.
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

// literal returns an error if the header contains neither one of these media types verbatim nor */*. The reference
// checks some paths in this way before it negotiates, and the error differs from that of negotiation.
func literal(accept string, mediaTypes ...string) error {
	if wire.Literal(accept, mediaTypes...) {
		return nil
	}
	return wire.NotLiteral(mediaTypes...)
}
