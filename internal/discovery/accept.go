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

// form says what a client wants to know of a path that has several discovery documents.
type form uint8

const (
	unaggregated form = iota
	aggregated        // groups with their versions and resources, those of other servers included
	noPeer            // the same of this server alone (profile=nopeer)
)

// negotiate selects the media type of a discovery document, and its form. several says whether the path has others than
// unaggregated.
func (d *Documents) negotiate(accept string, several bool) (mediaType string, asked form, err error) {
	for _, c := range wire.ParseAccept(accept).Clauses() {
		as, group, version := c.Param("as"), c.Param("g"), c.Param("v")
		transform := as != "" || group != "" || version != ""
		if transform && !(several && group == "apidiscovery.k8s.io" && version == "v2" && as == "APIGroupDiscoveryList") {
			continue
		}
		for _, m := range d.media.object {
			switch {
			case !c.Names(m):
			case !transform:
				return m, unaggregated, nil
			case c.Param("profile") == "nopeer":
				return m, noPeer, nil
			default:
				return m, aggregated, nil
			}
		}
	}
	return "", unaggregated, apierr.NewNotAcceptable(d.media.object)
}

// literal returns an error if the header contains neither one of these media types verbatim nor */*. The reference
// checks some paths in this way before it negotiates, and the error differs from that of negotiation.
func literal(accept string, mediaTypes ...string) error {
	if wire.Literal(accept, mediaTypes...) {
		return nil
	}
	return wire.NotLiteral(mediaTypes...)
}
