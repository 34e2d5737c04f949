package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is the user of the image: an id that no system assigns.
const user = "65532:65532"

// roots are the authorities that TLS trusts, where Debian keeps them.
const roots = "/etc/ssl/certs/ca-certificates.crt"

// image writes an image of the program alone: no shell, no other file but the
// roots of TLS, no root. docker load and podman load read it.
func (r *release) image(path string, t target, binary string) error {
	layer, err := r.layer(binary)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config := &v1.ConfigFile{
		Architecture: t.arch, OS: t.os, Created: v1.Time{Time: r.at},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/stint"}, Cmd: []string{"serve", "/etc/stint/stint.yaml"},
			Env: []string{"SSL_CERT_FILE=" + roots}, WorkingDir: "/",
			Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/stint", "health"}},
			Labels: map[string]string{
				"org.opencontainers.image.title": "stint", "org.opencontainers.image.version": r.version,
				"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://" + stint,
			},
		},
	}
	was, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config.RootFS, config.History = was.RootFS, was.History
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	if image, err = mutate.Time(image, r.at); err != nil {
		return err
	}
	tag, err := name.NewTag("stint:" + t.arch)
	if err != nil {
		return err
	}
	tags := map[name.Tag]v1.Image{tag: image}
	if t.arch == runtime.GOARCH || t.arch == "amd64" {
		latest, err := name.NewTag("stint:latest")
		if err != nil {
			return err
		}
		tags = map[name.Tag]v1.Image{latest: image}
	}
	return tarball.MultiWriteToFile(path, tags)
}

// layer returns the files of the image.
func (r *release) layer(binary string) (v1.Layer, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(name string, text []byte, mode int64) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), ModTime: r.at}); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	}
	if err := put("stint", program, 0o755); err != nil {
		return nil, err
	}
	if text, err := os.ReadFile(roots); err == nil { // where the builder has them
		for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/"} {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: r.at}); err != nil {
				return nil, err
			}
		}
		if err := put(roots[1:], text, 0o644); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
}
