package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOMs writes the lists of modules that the programs of a platform consist of, which the linker has recorded in
// them, and of the libraries of the console's page, which are files in plinth.
func (r *release) writeSBOMs(p platform) error {
	page, err := r.pageLibraries()
	if err != nil {
		return err
	}
	if err := r.writeSBOM(p, name, summary, r.programs[p].plinth, page); err != nil {
		return err
	}
	return r.writeSBOM(p, cloudName, "Backups of Plinth in object storages", r.programs[p].cloud, nil)
}

func (r *release) writeSBOM(p platform, of, about, file string, more []cyclonedx.Component) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	itself := fmt.Sprintf("pkg:golang/%s@v%s", r.module, r.version)
	product := cyclonedx.Component{BOMRef: of, Type: cyclonedx.ComponentTypeApplication, Name: of, Version: r.version,
		Description: about, PackageURL: itself}
	if of != name {
		product.PackageURL = fmt.Sprintf("pkg:golang/%s@v%s", info.Main.Path, r.version)
	}
	if r.licence != nil {
		product.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: r.licence.id}}}
	}
	modules := []cyclonedx.Component{{BOMRef: "std", Type: cyclonedx.ComponentTypeLibrary, Name: "std",
		Version: info.GoVersion, PackageURL: "pkg:golang/std@" + info.GoVersion[len("go"):]}}
	refs := []string{"std"}
	for _, m := range info.Deps {
		if m.Path == r.module { // of the same release, from the same sources
			modules = append(modules, cyclonedx.Component{BOMRef: itself, Type: cyclonedx.ComponentTypeLibrary,
				Name: m.Path, Version: r.version, PackageURL: itself})
			refs = append(refs, itself)
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		purl := fmt.Sprintf("pkg:golang/%s@%s", m.Path, m.Version)
		modules = append(modules, cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path,
			Version: m.Version, PackageURL: purl, Properties: &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}})
		refs = append(refs, purl)
	}
	for _, l := range more {
		modules, refs = append(modules, l), append(refs, l.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &product}
	bom.Components = &modules
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: of, Dependencies: &refs}}
	// Random elsewhere; here the same for the same program.
	id := sha256.Sum256([]byte(of + r.module + r.version + r.commit + p.String()))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // RFC 9562, version 8
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return r.put(fmt.Sprintf("%s_%s_%s_%s.cdx.json", of, r.version, p.os, p.arch), out.Bytes())
}

// pageLibraries are the npm packages whose files are in the program: those of the list by which they were fetched.
func (r *release) pageLibraries() (all []cyclonedx.Component, err error) {
	list, err := os.ReadFile(filepath.Join(r.source, "tools", "webvendor", "packages.txt"))
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] == "#" || seen[fields[0]] {
			continue
		}
		seen[fields[0]] = true
		purl := fmt.Sprintf("pkg:npm/%s@%s", strings.Replace(fields[0], "@", "%40", 1), fields[1])
		all = append(all, cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: fields[0],
			Version: fields[1], PackageURL: purl,
			Properties: &[]cyclonedx.Property{{Name: "npm:integrity", Value: fields[2]}}})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the list of the console's libraries is empty")
	}
	return all, nil
}
