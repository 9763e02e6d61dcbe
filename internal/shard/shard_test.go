package shard

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
)

const (
	low  = "'0x0000000000000000'"
	mid  = "'0x8000000000000000'"
	high = "'0x10000000000000000'"
)

func over(field Field, from, to string) string {
	return "shardRange(" + string(field) + ", " + from + ", " + to + ")"
}

// SPEC: LIST-9
func TestSelectorsAreReadAndPrinted(t *testing.T) {
	for text, want := range map[string]string{
		over(UID, low, mid): over(UID, low, mid),
		over(UID, low, mid) + "||" + over(UID, mid, high): over(UID, low,
			mid) + " || " + over(UID, mid, high),
		" ( shardRange(object . metadata.namespace,\"0x0000000000000000\" ,\t" + high + ") ) ": over(Namespace, low,
			high),
		"// all of it\n" + over(UID, low, high) + " // that is all": over(UID, low, high),
	} {
		s, err := Parse(text)
		if err != nil || s.String() != want || s.Empty() {
			t.Errorf("%s: %v, %v; want %s", text, s, err, want)
			continue
		}
		if again, err := Parse(s.String()); err != nil || again.String() != want {
			t.Errorf("%s does not read itself: %v", s, err)
		}
	}
}

// SPEC: LIST-9
func TestSelectorsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "empty shard selector is not allowed",
		" ":                                      "empty shard selector is not allowed",
		"x":                                      `ends where "("`,
		"hash(object.metadata.uid)":              `unsupported function "hash"`,
		over("metadata.uid", low, high):          `unsupported field path "metadata.uid"`,
		over("object.metadata.name", low, high):  `unsupported field path "object.metadata.name"`,
		over(UID, mid, mid):                      "start 0x8000000000000000 must be less than end 0x8000000000000000",
		over(UID, high, high):                    "must be less",
		over(UID, high, mid):                     "must be less",
		over(UID, "'0'", high):                   `hexStart must have '0x' prefix, got "0"`,
		over(UID, "'0x'", high):                  "hexStart: hex value is required",
		over(UID, "'0x0'", high):                 `did you mean "0x0000000000000000"?`,
		over(UID, low, "'0x80000000000000000'"):  "hexEnd: 17-digit hex value must be",
		over(UID, low, "'0x100000000000000000'"): "hexEnd: hex value too long (18 chars, max 17)",
		over(UID, low, "'0x800000000000000G'"):   `invalid hex character "G"`,
		over(UID, low, "'0xABCDEF0000000000'"):   `invalid hex character "A"`,
		over(UID, "0", high):                     `"0" stands where hexStart`,
		"shardRange(object.metadata.uid)":        `")" stands where a comma and hexStart`,
		"shardRange(object.metadata.uid, " + low + ", " + high + ",": `"," stands where ")"`,
		over(UID, low, high) + " && " + over(UID, low, high):         `"&" stands where the end`,
		over(UID, low, high) + " ||":                                 "ends where shardRange()",
		over(UID, low, mid) + " || " + over(Namespace, mid,
			high): `must use the same field, got "object.metadata.uid" and "object.metadata.namespace"`,
		over(UID, low, "'0x8000000000000000"):            "stands where hexEnd",
		strings.Repeat("(", 1000) + over(UID, low, high): "nested too deep",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, %v; want %s", text, s, err, want)
		}
	}
}

// Each object is in exactly one of the shards that divide the hashes, and in each selector that contains its hash,
// whatever order its ranges have and however they overlap.
//
// SPEC: LIST-9
func TestSelectorsDivideObjects(t *testing.T) {
	bound := func(at, of uint64) string {
		if at == of {
			return high
		}
		return fmt.Sprintf("'0x%016x'", (1<<63)/of*2*at)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		uid, namespace := fmt.Sprint(random.Uint64()), fmt.Sprint("ns-", random.Uint64())
		for _, of := range []uint64{1, 2, 3, 7} {
			var mine []uint64
			for at := range of {
				s, err := Parse(over(UID, bound(at, of), bound(at+1, of)))
				if err != nil {
					t.Fatal(err)
				}
				if s.Matches(uid, namespace) {
					mine = append(mine, at)
				}
			}
			if len(mine) != 1 {
				t.Errorf("%s is in the shards %d of %d", uid, mine, of)
			}
		}
		var calls []string
		inside := false
		want := fnv.New64a()
		want.Write([]byte(namespace))
		for range 1 + random.IntN(20) {
			from := random.Uint64()
			to := from + random.Uint64()>>random.IntN(8)
			if to <= from {
				continue
			}
			calls = append(calls, fmt.Sprintf("shardRange(%s, '0x%016x', '0x%016x')", Namespace, from, to))
			inside = inside || from <= want.Sum64() && want.Sum64() < to
		}
		if len(calls) == 0 {
			continue
		}
		s, err := Parse(strings.Join(calls, " || "))
		if err != nil {
			t.Fatal(err)
		}
		if s.Matches(uid, namespace) != inside {
			t.Errorf("%s: %s is %v inside", s, namespace, inside)
		}
	}
	if none := (*Selector)(nil); !none.Matches("x", "") || !none.Empty() || none.String() != "" {
		t.Error("no selector does not select everything")
	}
}
