package etcdform

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/gotypes"
	"plinth/internal/proto"
	"plinth/merge"
	"plinth/object"
)

// NodePortsPath is the path of the bitmap of the node ports that Services have.
const NodePortsPath = "ranges/servicenodeports"

// NodePorts converts the bitmap of node ports: a RangeAllocation, which no URL serves. Its range is "30000-32767", and
// its data are the bytes of a number, the most significant one first and none for 0, whose bit i is that of the port
// 30000 + i.
//
//	a bit is set  ⇔  the port is given to a Service, is about to be, or was a moment ago
type NodePorts struct {
	first, last int64 // the configured range
	json        bool
}

// NewNodePorts returns the conversion for a range of ports. mediaType is that of the values of built-in kinds.
func NewNodePorts(first, last int64, mediaType string) *NodePorts {
	return &NodePorts{first: first, last: last, json: mediaType == JSON}
}

// rangeAllocation has the fields of a RangeAllocation in their order. Plinth has no such kind.
type rangeAllocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Range             string `json:"range" protobuf:"bytes,2,opt,name=range"`
	Data              []byte `json:"data" protobuf:"bytes,3,opt,name=data"`
}

// The errors of changes of a bitmap, in the words of the reference.
var (
	errNoRange = errors.New("cannot allocate resources of type servicenodeportallocations at this time")
	errTaken   = errors.New("provided port is already allocated")
	errRange   = errors.New("the provided range does not match the current range")
)

// Ports returns the ports whose bits are set, in their order. The range is that of the value, not the configured one.
func (p *NodePorts) Ports(value []byte) ([]int64, error) {
	_, first, last, bits, err := p.parse(value)
	if err != nil {
		return nil, err
	}
	var ports []int64
	for i := range bits.BitLen() {
		if port := first + int64(i); bits.Bit(i) == 1 && port <= last {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// Check returns why no port can be given at this time, in the words of the reference; nil if ports can be given.
func (p *NodePorts) Check(value []byte) error {
	if len(value) == 0 {
		return errNoRange
	}
	obj, _, _, _, err := p.parse(value)
	if err == nil && obj.At("range").Str() != p.text() {
		err = errRange
	}
	return err
}

// Change returns the value with the bits of some ports set, and those of others cleared. To set bits is an error if
// Check returns one, or if they are set. Bits are cleared in the range that the value has.
func (p *NodePorts) Change(value []byte, set, cleared []int64) ([]byte, error) {
	if len(set) > 0 {
		if err := p.Check(value); err != nil {
			return nil, err
		}
	}
	obj, first, last, bits, err := p.parse(value)
	if err != nil {
		return nil, err
	}
	for _, port := range set {
		if port < first || port > last {
			return nil, fmt.Errorf("the port %d is not in the range %s", port, p.text())
		}
		if bits.Bit(int(port-first)) == 1 {
			return nil, errTaken
		}
		bits.SetBit(bits, int(port-first), 1)
	}
	for _, port := range cleared {
		if port >= first && port <= last {
			bits.SetBit(bits, int(port-first), 0)
		}
	}
	return p.print(obj, obj.At("range").Str(), bits)
}

// Rebuild returns the value in whose place these ports, and no others, are set in the configured range. value is nil if
// there is none yet; it may have another range.
func (p *NodePorts) Rebuild(value []byte, ports []int64) ([]byte, error) {
	obj := object.Fields("metadata", object.Fields())
	if len(value) > 0 {
		var err error
		if obj, _, _, _, err = p.parse(value); err != nil {
			return nil, err
		}
	}
	bits := new(big.Int)
	for _, port := range ports {
		bits.SetBit(bits, int(port-p.first), 1)
	}
	return p.print(obj, p.text(), bits)
}

// text is the configured range.
func (p *NodePorts) text() string {
	return strconv.FormatInt(p.first, 10) + "-" + strconv.FormatInt(p.last, 10)
}

// parse reads a value. An empty range is the configured one.
func (p *NodePorts) parse(value []byte) (obj object.Value, first, last int64, bits *big.Int, err error) {
	fail := func(err error) (object.Value, int64, int64, *big.Int, error) { return object.Nil, 0, 0, nil, err }
	v, err := (&kindForm{kind: "RangeAllocation"}).recognize(value)
	if err != nil {
		return fail(err)
	}
	if v.apiVersion != "v1" {
		return fail(fmt.Errorf("%s is no version of RangeAllocation that can be read", v.apiVersion))
	}
	if obj, err = v.decode(gotypes.Of[rangeAllocation]()); err != nil {
		return fail(err)
	}
	first, last = p.first, p.last
	if text := obj.At("range").Str(); text != "" {
		low, high, _ := strings.Cut(text, "-")
		if first, err = strconv.ParseInt(low, 10, 32); err == nil {
			last, err = strconv.ParseInt(high, 10, 32)
		}
		if err != nil || first < 0 || last < first || last > 65535 {
			return fail(fmt.Errorf("%q is no range of ports", text))
		}
	}
	data, err := base64.StdEncoding.DecodeString(obj.At("data").Str())
	if err != nil {
		return fail(err)
	}
	return obj, first, last, new(big.Int).SetBytes(data), nil
}

// print is the value of a RangeAllocation with a range and these bits.
func (p *NodePorts) print(obj object.Value, ports string, bits *big.Int) ([]byte, error) {
	text := object.StringOf
	obj = obj.Edit([]object.Member{
		{Key: "apiVersion", Value: text("v1")}, {Key: "kind", Value: text("RangeAllocation")},
		{Key: "range", Value: text(ports)},
		{Key: "data", Value: text(base64.StdEncoding.EncodeToString(bits.Bytes()))},
	})
	typ := gotypes.Of[rangeAllocation]()
	if p.json {
		return append(appendGo(nil, obj, typ), '\n'), nil
	}
	return proto.AppendStored(nil, typ, object.AppendObject(nil, obj), merge.AppendFieldsText)
}
