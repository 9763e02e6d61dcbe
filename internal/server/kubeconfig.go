package server

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"

	"plinth/object"
)

// writeKubeconfig writes a kubeconfig for the administrator. If authority is nil, clients verify the server by the
// system's authorities.
func writeKubeconfig(path, url string, authority []byte, admin pair) error {
	cluster := []object.Member{{Key: "server", Value: object.StringOf(url)}}
	if authority != nil {
		cluster = append(cluster, object.Member{Key: "certificate-authority-data", Value: base64Of(authority)})
	}
	named := func(name, key string, value object.Value) object.Value {
		return object.ListOf(object.Fields("name", object.StringOf(name), key, value))
	}
	text, err := object.YAML(object.AppendObject(nil, object.Fields(
		"apiVersion", object.StringOf("v1"),
		"kind", object.StringOf("Config"),
		"clusters", named("plinth", "cluster", object.MapOf(cluster...)),
		"users", named(administrator, "user", object.Fields(
			"client-certificate-data", base64Of(admin.cert),
			"client-key-data", base64Of(admin.key))),
		"contexts", named("plinth", "context", object.Fields(
			"cluster", object.StringOf("plinth"), "user", object.StringOf(administrator))),
		"current-context", object.StringOf("plinth"))))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return replaceFile(path, text)
}

// replaceFile replaces a file as a whole. Only its owner can read it. It is not synced: every start writes it again.
func replaceFile(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}

func base64Of(data []byte) object.Value {
	return object.StringOf(base64.StdEncoding.EncodeToString(data))
}
