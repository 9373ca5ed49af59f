package registry

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-mcp/slipway/test/hang"
)

// requests are what a server was asked.
type requests struct {
	mu  sync.Mutex
	all []*http.Request
}

func (r *requests) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.all = append(r.all, request)
		r.mu.Unlock()
		next.ServeHTTP(w, request)
	})
}

func (r *requests) list() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*http.Request(nil), r.all...)
}

// serve runs a server without TLS and returns its host and port.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of attempts with TLS
	server.Start()
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// serveTLS runs a server with a certificate for www.example.com.
func serveTLS(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// storage is a real registry.
func storage() http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) }

// picture makes an image with a layer.
func picture(t *testing.T, architecture string, config v1.Config) v1.Image {
	t.Helper()
	layer, err := random.Layer(256, "application/vnd.oci.image.layer.v1.tar+gzip")
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", architecture, config
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// indexOf makes an index of images, each with its platform.
func indexOf(t *testing.T, images map[string]v1.Image, order ...string) v1.ImageIndex {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, key := range order {
		var platform *v1.Platform
		if os, architecture, ok := strings.Cut(key, "/"); ok {
			platform = &v1.Platform{OS: os, Architecture: architecture}
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: images[key], Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index
}

// store puts something into a registry.
func store(t *testing.T, reference string, what remote.Taggable) {
	t.Helper()
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Push(ref, what); err != nil {
		t.Fatal(err)
	}
}

func digestOf(t *testing.T, what interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	digest, err := what.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// dockerConfig is a pull Secret: places and what is in them.
func dockerConfig(t *testing.T, secretName string, auths map[string]any) corev1.Secret {
	t.Helper()
	content, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		t.Fatal(err)
	}
	return corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: content},
	}
}

func login(user, password string) map[string]any {
	return map[string]any{"username": user, "password": password}
}

func encodedLogin(user, password string) map[string]any {
	return map[string]any{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}
}

// patient is a Resolver that has all the time it needs.
func patient(options Options) *Resolver {
	options.Timeout = hang.Guard
	return New(options)
}

// problemOf resolves and expects an error.
func problemOf(t *testing.T, resolver *Resolver, reference string, secrets ...corev1.Secret) *Error {
	t.Helper()
	image, err := resolver.Resolve(t.Context(), reference, secrets)
	if err == nil {
		t.Fatalf("resolved %s to %+v", reference, image)
	}
	problem, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error %v is a %T", err, err)
	}
	t.Log(problem)
	if problem.Detail == "" || problem.Reference == "" {
		t.Errorf("incomplete: %+v", problem)
	}
	return problem
}

// fakeDNS answers with one address for every name.
func fakeDNS(address string) *net.Resolver {
	answer := netip.MustParseAddr(address)
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go answerDNS(server, answer)
		return client, nil
	}}
}

// answerDNS answers questions for A and AAAA, each with its length before it.
func answerDNS(conn net.Conn, address netip.Addr) {
	defer func() { _ = conn.Close() }()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		end := 12
		for query[end] != 0 {
			end += int(query[end]) + 1
		}
		kind := binary.BigEndian.Uint16(query[end+1:])
		question := query[12 : end+5]
		reply := append([]byte{}, query[:2]...)
		reply = append(reply, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
		reply = append(reply, question...)
		if kind == 1 && address.Is4() || kind == 28 && address.Is6() {
			reply[7] = 1
			reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 1, 0, byte(address.BitLen()/8))
			reply = append(reply, address.AsSlice()...)
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}
