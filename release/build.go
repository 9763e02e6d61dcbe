package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// programs are the paths of the programs of one platform.
type programs struct{ plinth, cloud, kubectl string }

// cloudName is the program for backups in object storages, which has an archive of its own: it is as large as plinth.
const cloudName = "plinth-cloud"

// compile builds the programs of a platform: static, without the paths of the checkout, and without what the go command
// finds out about it, so that they are the same elsewhere.
func (r *release) compile(p platform) error {
	built := programs{
		plinth:  filepath.Join(r.work, p.os+"-"+p.arch, p.exe("plinth")),
		cloud:   filepath.Join(r.work, p.os+"-"+p.arch, p.exe(cloudName)),
		kubectl: filepath.Join(r.work, p.os+"-"+p.arch, p.exe("kubectl")),
	}
	product := r.module + "/internal/product"
	from := fmt.Sprintf("-X %s.from=%s -X %s.at=%s", product, r.commit, product, r.date.Format(time.RFC3339))
	if err := r.goBuild(p, r.source, built.plinth, "./cmd/plinth", from); err != nil {
		return err
	}
	if err := r.goBuild(p, filepath.Join(r.source, "cloud"), built.cloud, ".", from); err != nil {
		return err
	}
	if r.kubectl != "" {
		built.kubectl = r.kubectl
		r.programs[p] = built
		return nil
	}
	r.programs[p] = built
	of := "k8s.io/component-base/version"
	parts := strings.SplitN(r.kubernetes, ".", 3)
	return r.goBuild(p, filepath.Join(r.source, "tools"), built.kubectl, "./kubectl",
		fmt.Sprintf("-X %s.gitVersion=v%s -X %s.gitMajor=%s -X %s.gitMinor=%s", of, r.kubernetes, of, parts[0], of, parts[1]))
}

func (r *release) goBuild(p platform, dir, to, what, variables string) error {
	began := time.Now()
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
		"-ldflags", "-s -w -buildid= "+variables, "-o", to, what)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1",
		"GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	info, err := os.Stat(to)
	if err != nil {
		return err
	}
	fmt.Printf("%s for %s: %.1f MB, %s\n", filepath.Base(to), p, float64(info.Size())/1e6,
		time.Since(began).Round(time.Second))
	return nil
}
