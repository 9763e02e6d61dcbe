package httpapi

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/features"
	"plinth/internal/wire"
	"plinth/object"
)

// The z-pages show an administrator what runs here (RUN-3): /statusz the program, /flagz its flags. Both are text for
// people, and objects of the group config.k8s.io for clients that request their kind.

// Statusz is the content of /statusz.
type Statusz struct {
	Started                  time.Time
	GoVersion                string
	BinaryVersion, Emulation string // "1.37.1", "1.37"
}

// component is the name of the reference on its z-pages.
const component = "apiserver"

// zpageTypes are the media types of both pages in the order in which wildcards are tried; the last one needs its gate.
var zpageTypes = []struct {
	name     string
	encoding wire.Encoding
	text     bool
}{
	{name: wire.JSON.String(), encoding: wire.JSON},
	{name: wire.YAML.String(), encoding: wire.YAML},
	{name: "text/plain", text: true},
	{name: wire.CBOR.String(), encoding: wire.CBOR},
}

// zpage answers /statusz or /flagz. ok is false if the path is another one, or the page is not configured.
func (h *Handler) zpage(rs *requestState) (ok bool, err error) {
	switch {
	case rs.r.URL.Path == "/statusz" && h.Statusz != nil:
		return true, rs.sendPage("Statusz", h.statusz, h.statuszText)
	case rs.r.URL.Path == "/flagz" && h.Flagz != nil:
		return true, rs.sendPage("Flagz", h.flagz, h.flagzText)
	}
	return false, nil
}

// sendPage answers with text, or with the object if the client requests its kind.
func (rs *requestState) sendPage(kind string, members func() []any, text func() string) error {
	media, version, asText, err := rs.zpageMedia(kind)
	if err != nil {
		return err
	}
	if asText {
		rs.w.Header()["Content-Type"] = plainText
		return rs.whole([]byte("\n" + component + " " + strings.ToLower(kind) +
			"\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n" + text()))
	}
	if version == "v1alpha1" {
		rs.warn([]string{"This version of the " + strings.ToLower(kind) +
			" endpoint is deprecated. Please use a newer version."})
	}
	head := []any{"kind", object.StringOf(kind), "apiVersion", object.StringOf("config.k8s.io/" + version),
		"metadata", object.Fields("name", object.StringOf(component))}
	page := object.AppendObject(nil, object.Fields(append(head, members()...)...))
	body, err := encoded(media, append(page, '\n'))
	if err != nil {
		return err
	}
	rs.w.Header().Set("Content-Type", media.Encoding.String()+";g=config.k8s.io;v="+version+";as="+kind)
	return rs.whole(body)
}

// zpageMedia finds the media type in which the client accepts a page. Without an Accept header, or if it accepts
// everything, it is text: the other types must be requested together with kind, group and version.
func (rs *requestState) zpageMedia(kind string) (media wire.Media, version string, text bool, err error) {
	accept := rs.r.Header.Get("Accept")
	if strings.TrimSpace(accept) == "" {
		return media, "", true, nil
	}
	types := zpageTypes
	if !rs.h.Features.On(features.CBORServingAndStorage) {
		types = types[:len(types)-1]
	}
	for _, clause := range wire.ParseAccept(accept).Clauses() {
		as, group, version := clause.Param("as"), clause.Param("g"), clause.Param("v")
		if clause.Param("stream") != "" || clause.Param("sv") != "" {
			continue
		}
		structured := as == kind && group == "config.k8s.io" && (version == "v1alpha1" || version == "v1beta1")
		for _, t := range types {
			switch {
			case !clause.Names(t.name):
			case t.text && as+group+version == "":
				return media, "", true, nil
			case !t.text && structured:
				pretty := t.encoding == wire.JSON && (clause.Param("pretty") == "1" || rs.pretty())
				return wire.Media{Encoding: t.encoding, Pretty: pretty}, version, false, nil
			}
		}
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.name
	}
	return media, "", false, apierr.NewNotAcceptable(names)
}

// separators stand between names and values in the texts. As in the reference, they are chosen at random, so that no
// program relies on the format.
var separators = []string{":", ": ", "=", " "}

func separator() string { return separators[rand.N(len(separators))] }

func (h *Handler) statusz() []any {
	s := h.Statusz
	return []any{
		"startTime", object.StringOf(s.Started.UTC().Format(time.RFC3339)),
		"uptimeSeconds", object.IntOf(int64(time.Since(s.Started) / time.Second)),
		"goVersion", object.StringOf(s.GoVersion),
		"binaryVersion", object.StringOf(s.BinaryVersion),
		"emulationVersion", object.StringOf(s.Emulation),
		"paths", object.Strings(h.debugPaths()...),
	}
}

func (h *Handler) statuszText() string {
	s, current := h.Statusz, separator()
	up := int64(time.Since(s.Started) / time.Second)
	var b strings.Builder
	for _, line := range [][2]string{
		{"Started", s.Started.Format(time.UnixDate)},
		{"Up", fmt.Sprintf("%d hr %02d min %02d sec", up/3600, up/60%60, up%60)},
		{"Go version", s.GoVersion}, {"Binary version", s.BinaryVersion}, {"Emulation version", s.Emulation},
		{"Paths", strings.Join(h.debugPaths(), " ")},
	} {
		b.WriteString("\n" + line[0] + current + " " + line[1])
	}
	return b.String() + "\n"
}

// debugPaths returns the first segments of the paths that are served, except those of the API itself.
func (h *Handler) debugPaths() (list []string) {
	for _, path := range h.paths() {
		switch top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); top {
		case "", "api", "apis", "openid", "openapi", ".well-known":
		default:
			list = append(list, "/"+top)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (h *Handler) flagz() []any {
	flags := make([]any, 0, 2*len(h.Flagz))
	for _, name := range slices.Sorted(maps.Keys(h.Flagz)) {
		flags = append(flags, name, object.StringOf(h.Flagz[name]))
	}
	return []any{"flags", object.Fields(flags...)}
}

func (h *Handler) flagzText() string {
	current := separator()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h.Flagz)) {
		b.WriteString(name + current + h.Flagz[name] + "\n")
	}
	return b.String()
}
