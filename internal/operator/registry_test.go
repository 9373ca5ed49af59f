package operator

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/internal/controller"
	"github.com/slipway-mcp/slipway/internal/registry"
)

func TestPrivateCertificateAuthority(t *testing.T) {
	server := httptest.NewUnstartedServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	server.StartTLS()
	defer server.Close()
	reference := strings.TrimPrefix(server.URL, "https://") + "/team/tool:1"
	image, err := mutate.Config(empty.Image, v1.Config{Entrypoint: []string{"/tool"}})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithContext(t.Context()), remote.WithTransport(server.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	file := func(content []byte) string {
		path := filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	resolver, err := newResolver(config.Registry{CertificateAuthorityFile: file(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := resolver.Resolve(t.Context(), reference, nil); err != nil || len(got.Entrypoint) != 1 {
		t.Errorf("with its certificate: %+v, %v", got, err)
	}
	resolver, err = newResolver(config.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = resolver.Resolve(t.Context(), reference, nil)
	if problem, ok := errors.AsType[*registry.Error](err); !ok || problem.Kind != registry.Unavailable {
		t.Errorf("without its certificate: %v", err)
	}

	for name, path := range map[string]string{"no file": filepath.Join(t.TempDir(), "none"), "no certificate": file([]byte("surprise"))} {
		if _, err := newResolver(config.Registry{CertificateAuthorityFile: path}); err == nil ||
			!strings.Contains(err.Error(), "registry.certificateAuthorityFile") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The file shows what the controller does when it says nothing.
func TestRolloutsDefault(t *testing.T) {
	if got := config.Default().Rollouts.MaxConcurrent; got != controller.DefaultMaxRollouts {
		t.Errorf("the file says %d, the controller %d", got, controller.DefaultMaxRollouts)
	}
}
