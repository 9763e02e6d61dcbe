package etcdform_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"plinth/internal/etcdform"
)

// recordedPorts are values that a kube-apiserver has written, with the ports that Services had.
var recordedPorts = []struct {
	mediaType   string
	first, last int64
	ports       []int64
	value       string // base64, or JSON without the newline
}{
	{"", 30000, 32767, nil, "azhzAAoVCgJ2MRIPUmFuZ2VBbGxvY2F0aW9uEiEKEAoAEgAaACIAKgAyADgAQgASCzMwMDAwLTMyNzY3GgAaACIA"},
	{"", 30000, 32767, []int64{30000},
		"azhzAAoVCgJ2MRIPUmFuZ2VBbGxvY2F0aW9uEiIKEAoAEgAaACIAKgAyADgAQgASCzMwMDAwLTMyNzY3GgEBGgAiAA=="},
	{"", 30000, 32767, []int64{30000, 30009, 30701},
		"azhzAAoVCgJ2MRIPUmFuZ2VBbGxvY2F0aW9uEnkKEAoAEgAaACIAKgAyADgAQgASCzMwMDAwLTMyNzY3GlggAAAAAAAAAAAAAAAA" +
			"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIBGgAiAA=="},
	{"", 31000, 31100, []int64{31005},
		"azhzAAoVCgJ2MRIPUmFuZ2VBbGxvY2F0aW9uEiIKEAoAEgAaACIAKgAyADgAQgASCzMxMDAwLTMxMTAwGgEgGgAiAA=="},
	{etcdform.JSON, 30000, 32767, nil,
		`{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-32767","data":""}`},
	{etcdform.JSON, 30000, 32767, []int64{30000, 30009, 30701},
		`{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-32767","data":"IAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA` +
			`AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACAQ=="}`},
}

func recordedValue(t *testing.T, text string) []byte {
	t.Helper()
	if strings.HasPrefix(text, "{") {
		return []byte(text + "\n")
	}
	value, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// The bitmap of node ports has the bytes that the reference writes, however they come about. SPEC: STORE-3
func TestNodePorts(t *testing.T) {
	for i, r := range recordedPorts {
		p, value := etcdform.NewNodePorts(r.first, r.last, r.mediaType), recordedValue(t, r.value)
		if ports, err := p.Ports(value); err != nil || !slices.Equal(ports, r.ports) {
			t.Errorf("%d: the ports are %v, %v", i, ports, err)
		}
		if got, err := p.Rebuild(nil, r.ports); err != nil || string(got) != string(value) {
			t.Errorf("%d: rebuilt it is\n%q, %v, not\n%q", i, got, err, value)
		}
		empty, err := p.Rebuild(value, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(value); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if got, err := p.Change(empty, r.ports, []int64{1, r.last}); err != nil || string(got) != string(value) {
			t.Errorf("%d: with bits set it is\n%q, %v, not\n%q", i, got, err, value)
		}
		if got, err := p.Change(value, nil, r.ports); err != nil || string(got) != string(empty) {
			t.Errorf("%d: with bits cleared it is\n%q, %v, not\n%q", i, got, err, empty)
		}
	}
}

// What keeps the reference from giving ports keeps this server from it, with the same words; ports that are given back
// do not matter.
func TestNodePortsThatCannotBeGiven(t *testing.T) {
	p, other := etcdform.NewNodePorts(31000, 31100, ""), recordedValue(t, recordedPorts[2].value)
	for _, c := range []struct {
		value []byte
		words string
	}{
		{nil, "cannot allocate resources of type servicenodeportallocations at this time"},
		{other, "the provided range does not match the current range"},
		{[]byte("nonsense"), "yaml: invalid leading UTF-8 octet"},
		{[]byte(`{"kind":"RangeAllocation","apiVersion":"v2"}`), "v2 is no version of RangeAllocation"},
		{[]byte(`{"kind":"RangeAllocation","apiVersion":"v1","range":"a-b"}`), "is no range of ports"},
		{[]byte(`{"kind":"RangeAllocation","apiVersion":"v1","range":"5-2"}`), "is no range of ports"},
		{[]byte(`{"kind":"RangeAllocation","apiVersion":"v1","range":"1-65536"}`), "is no range of ports"},
		{[]byte(`{"kind":"RangeAllocation","apiVersion":"v1","data":"?"}`), "base64"},
	} {
		if err := p.Check(c.value); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q: %v, want %q", c.value, err, c.words)
		}
		if value, err := p.Change(c.value, []int64{31000}, nil); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q is changed to %q, %v", c.value, value, err)
		}
	}
	cleared, err := p.Change(other, nil, []int64{30009, 31000})
	if err != nil {
		t.Fatal(err)
	}
	if ports, err := p.Ports(cleared); err != nil || !slices.Equal(ports, []int64{30000, 30701}) {
		t.Errorf("without 30009 it has %v, %v", ports, err)
	}
	if again, err := p.Rebuild(other, []int64{31005}); err != nil ||
		string(again) != string(recordedValue(t, recordedPorts[3].value)) {
		t.Errorf("rebuilt in another range it is %q, %v", again, err)
	}
	for _, port := range []int64{31101, 30999, 31005} {
		if value, err := p.Change(recordedValue(t, recordedPorts[3].value), []int64{port}, nil); err == nil {
			t.Errorf("a port outside of the range, or one that is set, leads to %q", value)
		}
	}
}
