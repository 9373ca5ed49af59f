package main

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestPullArchive(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	ref := strings.TrimPrefix(server.URL, "http://") + "/kindest/node:v1"
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "node.tar")
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pullArchive(t.Context(), ref+"@"+digest.String(), path); err != nil || got != ref {
		t.Fatalf("name %q, %v; want %q", got, err, ref)
	}
	loaded, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	want, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := loaded.ConfigName(); err != nil || got != want {
		t.Errorf("image %v, %v; want %v", got, err, want)
	}
	server.Close()
	if _, err := pullArchive(t.Context(), ref, path); err == nil {
		t.Error("no error, though no registry answers")
	}
}
