package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// envtestArchive is the name of an archive, in which setup-envtest finds the version and the platform.
func (r *release) envtestArchive(p platform) string {
	return fmt.Sprintf("envtest-v%s-%s-%s.tar.gz", r.kubernetes, p.os, p.arch)
}

// writeEnvtest writes the archive of a platform for envtest: three programs as files, in the folder that setup-envtest
// takes away. Links would be left out by it.
func (r *release) writeEnvtest(p platform) error {
	var all []entry
	for _, e := range []struct{ name, from string }{
		{"etcd", r.programs[p].plinth}, {"kube-apiserver", r.programs[p].plinth}, {"kubectl", r.programs[p].kubectl},
	} {
		one, err := program("controller-tools/envtest/"+p.exe(e.name), e.from)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	body, err := tarGz(r.date, all)
	if err != nil {
		return err
	}
	return r.put(r.envtestArchive(p), body)
}

// envtestIndex is the index that setup-envtest and envtest's DownloadBinaryAssetsIndexURL read.
type envtestIndex struct {
	Releases map[string]map[string]envtestFile `json:"releases"`
}

type envtestFile struct {
	Hash     string `json:"hash"` // SHA-512
	SelfLink string `json:"selfLink"`
}

func (r *release) writeEnvtestIndex() error {
	files := map[string]envtestFile{}
	for _, p := range r.platforms {
		file := r.envtestArchive(p)
		files[file] = envtestFile{Hash: r.sums[file]["sha512"], SelfLink: r.url(file)}
	}
	body, err := yaml.Marshal(envtestIndex{map[string]map[string]envtestFile{"v" + r.kubernetes: files}})
	if err != nil {
		return err
	}
	return r.put("envtest-releases.yaml", body)
}
